"""Handwritten digits in a PyTorch training loop that any number of workers share: `plain_loop.py`, made elastic.

    elasticdl train --job_command="python -m model_zoo.digits.elastic_loop --output=out/digits.pt" \\
        --num_workers=2 --distribution_strategy=AllreduceStrategy --job_name=digits-epochs

`python -m model_zoo.digits.elastic_loop` alone trains in one process.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticai_api.pytorch.controller import create_elastic_controller

parser = argparse.ArgumentParser()
parser.add_argument("--num_epochs", type=int, default=3)
parser.add_argument("--output", default="")
arguments = parser.parse_args()

pixels, labels = load_digits(return_X_y=True)
images, digits = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
dataset = TensorDataset(images[:1437], digits[:1437])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(dataset, batch_size=16, shuffle=True)
controller = create_elastic_controller(
    model=model, optimizer=optimizer, loader=loader, num_epochs=arguments.num_epochs
)

for epoch in controller.epochs():
    for batch, answers in epoch:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), answers)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = model(images[1437:]).argmax(dim=1)
    print(f"epoch {epoch.number} accuracy {(found == digits[1437:]).float().mean():.4f}", flush=True)
    if arguments.output and controller.first:
        torch.save(model.state_dict(), arguments.output)
