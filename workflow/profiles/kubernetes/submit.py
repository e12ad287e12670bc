#!/usr/bin/env python3
"""submit.py JOBSCRIPT: creates a Kubernetes job for a Snakemake job and prints its name.

Fills the template job.yaml with the rule's command, folder, cores, memory (MB), GPUs and time limit (minutes).
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from snakemake.utils import read_job_properties


def manifest(jobscript: Path, folder: Path) -> dict[str, Any]:
    """The job that runs `jobscript` in `folder`, both on the shared volume."""
    job: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("job.yaml").read_text(encoding="utf-8"))
    properties = read_job_properties(jobscript)
    resources = properties["resources"]
    gpus = resources.get("gpu", 0)
    amounts = {
        "cpu": str(max(properties["threads"], gpus * resources["cpus_per_gpu"])),
        "memory": f"{resources['mem_mb']}M",
    }
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    job["metadata"].setdefault("annotations", {})["rule"] = properties["rule"]
    pod = job["spec"]["template"]["spec"]
    pod["activeDeadlineSeconds"] = 60 * resources["runtime"]
    pod["containers"][0] |= {
        # Not `command`: the image's entry point passes SIGTERM on to all processes. This shell ignores it, because
        # when the shell ends, so does the pod.
        "args": ["/bin/sh", "-c", "trap '' TERM; exec /bin/sh \"$0\"", str(jobscript)],
        "workingDir": str(folder),
        "resources": {"requests": amounts, "limits": amounts},
    }
    return job


if __name__ == "__main__":
    content = yaml.safe_dump(manifest(Path(sys.argv[1]).absolute(), Path.cwd()))
    create = ["kubectl", "create", "--filename=-", "--output=jsonpath={.metadata.name}"]
    sys.exit(subprocess.run(create, input=content, text=True, check=False).returncode)
