"""A Paddle program whose trainers come and go: the job of examplejob.yaml.

    python train_ft.py --model=FOLDER

It fits a line of eight features. Samples come from the master, shard by shard, and all trainers share one state in
FOLDER, so that whichever of them is stopped or killed, each sample is trained once and nothing learned is lost.
"""

import argparse

import numpy as np
import paddle

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.paddle.fault_tolerance import FaultTolerantTrainer

SAMPLES, FEATURES, BATCH = 20_000, 8, 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="model", help="folder of the state; the same for all trainers")
    parser.add_argument("--passes", type=int, default=10)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    features = random.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    targets = features @ np.arange(1, FEATURES + 1, dtype=np.float32)[:, None] + 0.5

    paddle.seed(0)
    model = paddle.nn.Linear(FEATURES, 1)
    optimizer = paddle.optimizer.SGD(0.02, parameters=model.parameters())
    service = build_data_shard_service(
        batch_size=BATCH,
        num_epochs=arguments.passes,
        dataset_size=SAMPLES,
        num_minibatches_per_shard=4,
        dataset_name="lines",
    )
    trainer = FaultTolerantTrainer(model, optimizer, service, arguments.model)
    # A trainer that comes when all shards are taken trains none.
    loss = None
    for shard in trainer.shards():
        for start in range(shard.start, shard.end, BATCH):
            batch = slice(start, min(start + BATCH, shard.end))
            loss = paddle.nn.functional.mse_loss(
                model(paddle.to_tensor(features[batch])), paddle.to_tensor(targets[batch])
            )
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
    if loss is not None:
        print(f"loss {float(loss):.4f} after {trainer.version} shards", flush=True)


if __name__ == "__main__":
    main()
