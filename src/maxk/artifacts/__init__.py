"""Everything on disk: paths, row schemas, reading and writing, locks, models, provenance."""
