"""`python -m maxk`: the command line, also where the package is not installed."""

import sys

from maxk.cli import main

sys.exit(main())
