"""`verification`: the grader."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from maxk.schema import Count, Positive, Section


class Verification(Section):
    """The grader (docs/grader.md)."""

    sandbox: Literal["auto", "bubblewrap", "landlock", "seccomp", "off"] = Field(
        "auto",
        description="Isolation tier; `auto` takes the strongest that works, `off` is the explicit opt-out.",
    )
    mode: Literal["auto", "fork"] = Field(
        "auto",
        description="`fork` runs every test in a process of its own; `auto` shares one between the tests of a program "
        "proven state-free. Of rewards and evaluation; the same verdicts, so not part of a result's identity.",
    )
    cpu_s: Positive = Field(2.0, description="CPU seconds a test, unless the problem states its own.")
    memory_mb: Count = Field(512, description="Memory of a program, in MiB, unless the problem states its own.")
    output_bytes: Count = Field(1_000_000, description="Output of a test beyond this is `output_limit`.")
    workers: Count = Field(1, description="Grading processes a job; not part of a result's identity.")

    @property
    def semantics(self) -> dict[str, Any]:
        """What can change a verdict: everything but how the work is divided."""
        return self.model_dump(exclude={"mode", "workers"})
