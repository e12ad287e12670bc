"""The one error users are meant to see.

A `UserError` is something the user can mend: a wrong key, a missing file, a host without a sandbox. The command line
prints its message as one line and exits with status 2. Anything else is a bug of ours and keeps its traceback.
"""


class UserError(Exception):
    """A fault in what the user gave or has; the message names the thing and what to do about it."""
