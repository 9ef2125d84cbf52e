"""Handwritten digits in a loop with Hugging Face Accelerate, trained by workers that may come and go.

    elasticdl train --job_command="python -m model_zoo.digits.accelerate_loop" \\
        --num_workers=2 --distribution_strategy=AllreduceStrategy --job_name=digits-accelerate

Accelerate prepares model, optimizer and schedule; the batches are those of the controller. Alone,
`python -m model_zoo.digits.accelerate_loop` trains in one process.
"""

import argparse

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticai_api.pytorch.controller import create_elastic_controller


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--output", default="")
    arguments = parser.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    images, digits = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    loader = DataLoader(TensorDataset(images[:1437], digits[:1437]), batch_size=16, shuffle=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    controller = create_elastic_controller(
        model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, num_epochs=arguments.num_epochs
    )
    # With the gradients of all workers in place.
    controller.before_step(lambda: accelerator.clip_grad_norm_(model.parameters(), 5.0))
    for epoch in controller.epochs():
        for batch, answers in epoch:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(batch.to(accelerator.device)), answers.to(accelerator.device)
            )
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
        with torch.no_grad():
            found = model(images[1437:].to(accelerator.device)).argmax(dim=1).cpu()
        rate = optimizer.param_groups[0]["lr"]
        accuracy = (found == digits[1437:]).float().mean()
        print(
            f"epoch {epoch.number} step {controller.step} rate {rate:.4f} accuracy {accuracy:.4f}", flush=True
        )
        if arguments.output and controller.first:
            accelerator.save(model.state_dict(), arguments.output)


if __name__ == "__main__":
    main()
