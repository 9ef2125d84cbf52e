"""Handwritten digits in a plain PyTorch training loop, for one process. `elastic_loop.py` is the same one made elastic.

python -m model_zoo.digits.plain_loop --output=out/digits.pt
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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

for epoch in range(arguments.num_epochs):
    for batch, answers in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), answers)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = model(images[1437:]).argmax(dim=1)
    print(f"epoch {epoch} accuracy {(found == digits[1437:]).float().mean():.4f}", flush=True)
    if arguments.output:
        torch.save(model.state_dict(), arguments.output)
