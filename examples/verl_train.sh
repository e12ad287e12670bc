#!/usr/bin/env bash
# verl with advantages for the best of 4 and maxk's sandbox for rewards. verl finds the estimator where maxk is installed:
#   pip install '.[torch,grade]' verl    # in a checkout of maxk
#   bash examples/verl_train.sh data/train.parquet data/test.parquet Qwen/Qwen2.5-Coder-7B-Instruct
# The parquet files hold `prompt` and, in `reward_model.ground_truth`, the tests: '[{"stdin": "1\n", "expected": "2\n"}]'.
set -euo pipefail

python -m verl.trainer.main_ppo \
    data.train_files="$1" data.val_files="$2" actor_rollout_ref.model.path="$3" \
    algorithm.adv_estimator=maxk +algorithm.maxk.type=bon_loo1 +algorithm.maxk.k=4 \
    actor_rollout_ref.rollout.n=8 \
    reward.custom_reward_function.path=pkg://maxk.integrations.verl \
    reward.custom_reward_function.name=compute_score
