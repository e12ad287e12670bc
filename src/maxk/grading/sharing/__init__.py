"""Which programs may share a process, and with which: a fork and its page faults cost several times a short program.

A program in which `refusal` finds nothing lies in a small language (`language.py`). It runs all its tests in one
process, and up to sixteen such programs, of different problems, run in the same one (`packs.py`). A run that does not
end normally there is repeated in its own process (`confined/shared.py`). Verdicts are those of a process for every
test. `Grader(mode="fork")` does not use this package.
"""
