"""The code that runs inside the sandbox: standard library only, and nothing of maxk outside this folder."""
