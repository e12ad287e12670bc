"""One module per subcommand of `maxk`; those of the pipeline are also rules of the Snakefile.

A stage reads files, calls the code of its package, writes files and records itself for MLflow. Each module has
`register_parser(subparsers)`, which is free of heavy imports, and `run(args)`.
"""
