"""One module a stage, each also a subcommand of `maxk` and a rule of the Snakefile.

A stage reads files, calls the pure code of its package, writes files and tracks itself; nothing else does I/O. Each
module has `register_parser(subparsers)`, which stays free of heavy imports, and `run(args)`.
"""
