#!/bin/sh
# status.sh JOB: prints success, failed or running. A deleted job has failed; if the cluster does not respond, the job
# counts as running.
found=$(kubectl get job "$1" --ignore-not-found --output='jsonpath={.metadata.name} {.status.succeeded} {.status.failed}') ||
    { echo running; exit; }
case $found in
    "") echo failed ;;
    "$1 1 "*) echo success ;;
    "$1  ") echo running ;;
    *) echo failed ;;
esac
