#!/usr/bin/env bash
# slime with advantages for the best of 4; further arguments (model, data, cluster) are those of slime's train.py:
#   bash examples/slime_train.sh --prompt-data data/train.jsonl --rm-type math …     # in slime's folder
set -euo pipefail

config=$(mktemp --suffix .yaml)
echo 'maxk: {type: bon_loo1, k: 4}' > "$config"
python train.py \
    --advantage-estimator grpo --n-samples-per-prompt 8 \
    --custom-reward-post-process-path maxk.integrations.slime.post_process_rewards \
    --custom-config-path "$config" "$@"
