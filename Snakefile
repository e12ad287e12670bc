"""Lets `snakemake` find the workflow from here; it stands in workflow/Snakefile."""


include: "workflow/Snakefile"


# An included file does not set it.
workflow.default_target = "all"
