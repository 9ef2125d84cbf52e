"""A training loop of one's own in PyTorch that is elastic by all-reduce. Alone it trains in one process:

    python -m model_zoo.digits.allreduce_loop

As a job, with workers that may come and go:

    elasticdl train --job_command="python -m model_zoo.digits.allreduce_loop --num_epochs=5 --output=out/digits.pt" \\
        --num_workers=2 --distribution_strategy=AllreduceStrategy --job_name=digits-loop
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from elasticai_api.pytorch.controller import create_elastic_controller


def train_one_batch(model, optimizer, data, target):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_epochs", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--loader_processes", type=int, default=0)
    parser.add_argument("--seconds_per_batch", type=float, default=0.0, help="to have time to look at it")
    parser.add_argument("--output", default="")
    arguments = parser.parse_args()

    digits = load_digits()
    dataset = TensorDataset(
        torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target, dtype=torch.long)
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9)

    controller = create_elastic_controller(
        batch_size=arguments.batch_size,
        num_epochs=arguments.num_epochs,
        dataset_size=len(dataset),
        shuffle=True,
    )
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    train = controller.elastic_run(train_one_batch)
    with controller.scope():
        step = 0
        for data, target in controller.loader(dataset, num_workers=arguments.loader_processes):
            train(model, optimizer, data, target)
            time.sleep(arguments.seconds_per_batch)
            if controller.step > step:
                step = controller.step
                print(
                    f"step {step} loss {controller.last_loss:.6f} workers {len(controller.members)}",
                    flush=True,
                )
        if controller.first and arguments.output:
            torch.save(model.state_dict(), arguments.output)
    with torch.no_grad():
        accuracy = (model(dataset.tensors[0]).argmax(1) == dataset.tensors[1]).float().mean()
    print(f"accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
