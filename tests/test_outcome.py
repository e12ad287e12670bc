"""What a run says last names the job that failed and its reason, whoever wrote the end of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxk.stages import outcome

# As torchrun and `accelerate launch` leave it, shortened.
REPORT = """E1128 18:10:06.174000 3846 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1)
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
maxk FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 5644)
  traceback : Signal 15 (SIGTERM) received by PID 5644
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {exitcode} (pid: 5645)
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("train grpo: 3/9\nmaxk train: no space left\n\n", "maxk train: no space left"),
        ("ValueError: caught, and gone on from\nKilled\n", "Killed"),
        (
            '[rank1]:   File "a.py", line 1, in <module>\n[rank1]: RuntimeError: cuda:0 and cuda:1!\n'
            "[rank0]: RuntimeError: Connection closed by peer\n" + REPORT.format(exitcode=1, traceback=NO_TRACEBACK),
            "RuntimeError: cuda:0 and cuda:1!",
        ),
        (
            "maxk train: before the first step the KL is 4.3\n" + REPORT.format(exitcode=2, traceback=NO_TRACEBACK),
            "maxk train: before the first step the KL is 4.3",
        ),
        (
            "train grpo: 3/9\n" + REPORT.format(exitcode=-9, traceback="Signal 9 (SIGKILL) received by PID 5645"),
            "Signal 9 (SIGKILL) received by PID 5645",
        ),
    ],
)
def test_failed_jobs_are_named_with_their_reason(log: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(log)
    block = f"    jobid: 4\n    log: {tmp_path}/train.log (check log file(s) for error details)\n"
    first, *_ = told(f"Error in rule train:\n{block}", tmp_path)
    assert first == f"maxk: train failed: {said} ({tmp_path}/train.log)"


# As Snakemake 9.27 writes it: locally, for Slurm, and of the two kinds of the generic executor.
@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("None", "step 7"),
        ("For further error details see the cluster/cloud log and the log files of the involved rule(s).", "step 7"),
        (
            "SLURM-job '3' failed, SLURM status is: 'TIMEOUT'. For further error details see the cluster/cloud log.",
            "SLURM-job '3' failed, SLURM status is: 'TIMEOUT'; its last words: step 7",
        ),
        (
            "SLURM-job '3' failed, SLURM status is: 'CANCELLED'. No reason known.For further error details see",
            "SLURM-job '3' failed, SLURM status is: 'CANCELLED'. No reason known; its last words: step 7",
        ),
        (
            "Error submitting jobscript (exit code 127):\nFor further error details see the cluster/cloud log.",
            "Error submitting jobscript (exit code 127); its last words: step 7",
        ),
    ],
)
@pytest.mark.parametrize("second", ["", ", /work/.snakemake/slurm_logs/rule_train/3.log"])
def test_what_a_cluster_says_of_a_job_is_told(message: str, said: str, second: str, tmp_path: Path) -> None:
    """A job that a cluster ended knows nothing of it: its log just stops."""
    (tmp_path / "train.log").write_text("step 6\nstep 7\n")
    log = f"    jobid: 4\n    log: {tmp_path}/train.log{second} (check log file(s) for error details)\n"
    text = f"Error in rule train:\n    message: {message}\n{log}Error in rule score:\n{log}"
    first, other, *_ = told(text, tmp_path)
    assert first == f"maxk: train failed: {said} ({tmp_path}/train.log)"
    assert other == f"maxk: score failed: step 7 ({tmp_path}/train.log)"


def test_a_job_is_told_of_once(tmp_path: Path) -> None:
    """Tried three times, and the job's own Snakemake says that it failed, too; a rule without a log hides no other."""
    (tmp_path / "train.log").write_text("step 7\n")
    log = f"    jobid: 4\n    log: {tmp_path}/train.log (check log file(s) for error details)\n"
    tries = [
        f"Error in rule train:\n    message: job {i} timed out. For further error details see\n{log}" for i in range(3)
    ]
    text = "Error in rule mine:\n    message: None\n    jobid: 2\n".join(["", *tries]) + f"Error in rule train:\n{log}"
    assert told(text, tmp_path)[:-1] == [
        "maxk: mine failed: it writes no log",
        f"maxk: train failed: job 2 timed out; its last words: step 7 ({tmp_path}/train.log)",
    ]


def told(snakemake: str, folder: Path) -> list[str]:
    """What is said after a run whose Snakemake wrote this."""
    path = folder / "snakemake.log"
    path.write_text(snakemake)
    return outcome.failure([str(path)]).splitlines()
