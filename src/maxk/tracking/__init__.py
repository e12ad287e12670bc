"""What jobs log, as JSON lines in the experiment's folder, and MLflow, which mirrors them.

A job never talks to MLflow: `stage(…)` appends events to `results/logs/tracking/JOB.jsonl`. One process at a time
(`maxk.tracking.mirror`) sends new events: when a pipeline run starts and ends, and while `maxk ui` is open. So no job
waits for a tracker or fails because of one, any number of jobs run side by side, and a new database gets all events.

    with tracking.stage(config, "sample", policy="base") as run:
        run.params({...}); run.metrics({"tokens": 1.0}, step=0); run.artifact(path)
"""

from maxk.tracking.jobs import Run, report, stage

__all__ = ["Run", "report", "stage"]
