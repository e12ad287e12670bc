"""`python -m maxk`: the command line, also where the package is not installed."""

import sys

from maxk.cli import main

if __name__ == "__main__":  # processes that a stage spawns import this module
    sys.exit(main())
