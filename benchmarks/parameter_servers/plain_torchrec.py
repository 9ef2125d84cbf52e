"""The peer `TorchRec's kernels`: the model in one process, with the fused FBGEMM tables that TorchRec trains with.

One table per category, in main memory, bags of one id, and Adagrad applied in the backward pass. The dense parameters
use PyTorch's own Adagrad. Started by the interpreter of `torchrec.py`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType  # type: ignore[import-not-found, unused-ignore]
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (  # type: ignore[import-not-found, unused-ignore]
    EmbeddingLocation,
    PoolingMode,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (  # type: ignore[import-not-found, unused-ignore]
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch import nn

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress
from benchmarks.parameter_servers.torch_model import DeepFM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    layers = clicks.LAYERS[arguments.size]
    data = clicks.open_clicks(arguments.data)
    model = DeepFM(layers)
    assert sum(each.numel() for each in model.parameters()) == clicks.dense_parameters(layers)
    ids_each = data.sizes.ids // clicks.CATEGORIES
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        embedding_specs=[(ids_each, clicks.WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)]
        * clicks.CATEGORIES,
        optimizer=EmbOptimType.EXACT_ADAGRAD,
        learning_rate=clicks.RATE,
        eps=clicks.EPSILON,
        pooling_mode=PoolingMode.SUM,
    )
    with torch.no_grad():
        for weights in tables.split_embedding_weights():
            weights.uniform_(-clicks.SPREAD, clicks.SPREAD)
        for (sums,) in tables.split_optimizer_states():
            sums.fill_(clicks.START)
    optimizer = torch.optim.Adagrad(
        model.parameters(), lr=clicks.RATE, initial_accumulator_value=clicks.START, eps=clicks.EPSILON
    )
    begins = np.arange(clicks.CATEGORIES, dtype=np.int64) * ids_each
    offsets = torch.arange(clicks.CATEGORIES * data.sizes.batch + 1)
    progress = Progress("worker-0")
    for numbers, ids, labels in data.batches():
        # By table, each with its own ids from 0 on.
        own = torch.from_numpy(ids - begins).t().reshape(-1)
        rows = tables(own, offsets).view(len(ids), clicks.CATEGORIES, clicks.WIDTH)
        logits = model(torch.from_numpy(numbers), rows)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        progress.batch(loss.item())


if __name__ == "__main__":
    main()
