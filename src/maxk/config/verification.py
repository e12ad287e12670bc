"""`verification`: the grader."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from maxk.schema import Count, Positive, Section


class Verification(Section):
    """The grader (docs/grader.md)."""

    sandbox: Literal["auto", "bubblewrap", "landlock", "seccomp", "off"] = Field(
        "auto",
        description="Isolation tier; `auto` selects the strongest available, `off` disables isolation.",
    )
    mode: Literal["auto", "fork"] = Field(
        "auto",
        description="`fork` runs every test in its own process; `auto` shares one between the tests of a program "
        "proven state-free. For rewards and evaluation; verdicts are equal, so not part of a result's identity.",
    )
    cpu_s: Positive = Field(2.0, description="CPU seconds per test, unless the problem has its own limit.")
    memory_mb: Count = Field(512, description="Memory per program in MiB, unless the problem has its own limit.")
    output_bytes: Count = Field(1_000_000, description="Output bytes per test; more is `output_limit`.")
    workers: Count = Field(1, description="Grading processes per job; does not change results.")

    @property
    def semantics(self) -> dict[str, Any]:
        """Settings that can change a verdict; how the work is divided cannot."""
        return self.model_dump(exclude={"mode", "workers"})
