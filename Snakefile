"""Entry point for `snakemake` in this folder; the workflow is in workflow/Snakefile."""


include: "workflow/Snakefile"


# An included file does not set the default target.
workflow.default_target = "all"
