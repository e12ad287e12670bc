#!/usr/bin/env bash
# OpenRLHF with maxk's sandbox for rewards. It has no hook for advantages, so its own estimator stays.
#   pip install '.[torch,grade]' openrlhf    # in a checkout of maxk
#   bash examples/openrlhf_train.sh data/train.jsonl Qwen/Qwen2.5-Coder-7B-Instruct
# A line of the data: {"input": "Add two numbers.", "tests": "[{\"stdin\": \"1 2\\n\", \"expected\": \"3\\n\"}]"}
set -euo pipefail

reward=$(python -c 'import maxk.integrations.openrlhf as module; print(module.__file__)')
python -m openrlhf.cli.train_ppo_ray \
    --data.prompt_dataset "$1" --data.input_key input --data.label_key tests \
    --actor.model_name_or_path "$2" \
    --reward.remote_url "$reward" \
    --algo.advantage.estimator dr_grpo --rollout.n_samples_per_prompt 8
