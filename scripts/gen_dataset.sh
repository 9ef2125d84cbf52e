#!/usr/bin/env bash
# Writes MNIST as RecordIO: `scripts/gen_dataset.sh data` makes data/mnist/train and data/mnist/test.
#
# The source is a folder with MNIST's four idx files or with Keras' mnist.npz. Default: where Keras keeps its data sets.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "Usage: $0 OUTPUT_FOLDER [SOURCE_FOLDER]" >&2
  exit 2
fi
exec elasticdl data make mnist --output="$1/mnist" --source="${2:-$HOME/.keras/datasets}"
