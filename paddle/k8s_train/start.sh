#!/bin/bash
# Starts the node of a pod. What the Job's YAML does not set has the value of the guide's log.
exec python3 -u /root/start_paddle.py \
  --dot_period=10 \
  --log_period=50 \
  --num_passes="${PADDLE_NUM_PASSES:-10}" \
  --trainer_count="${TRAINER_COUNT:-4}" \
  --saving_period=1 \
  --local=0 \
  --config="${PADDLE_TRAIN_CONFIG:-./trainer_config.py}" \
  --config_args="${PADDLE_CONFIG_ARGS:-}" \
  --use_gpu=0 \
  "$@"
