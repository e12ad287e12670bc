"""One module per subcommand of `maxk`; those of the pipeline are also rules of the Snakefile.

A stage reads files, calls the code of its package, writes files and records itself for MLflow. Each module has
`run(args)`, and `add_arguments(parser)` if it takes arguments. Its docstring is its `--help`; `maxk.cli.COMMANDS` lists
the subcommands. Heavy libraries are imported in `run`.
"""
