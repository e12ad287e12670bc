"""Everything on disk: paths, row schemas, reading and writing, and what a file was made with."""
