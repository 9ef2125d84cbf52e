"""Handwritten digits with PyTorch Lightning, trained by workers that may come and go.

    elasticdl train --job_command="python -m model_zoo.digits.lightning_trainer --output=out/digits-lightning" \\
        --num_workers=2 --distribution_strategy=AllreduceStrategy --job_name=digits-lightning

`python -m model_zoo.digits.lightning_trainer` alone trains in one process.
"""

import argparse

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticai_api.lightning.callback import ElasticCallback


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, number):
        images, digits = batch
        return nn.functional.cross_entropy(self.layers(images), digits)

    def validation_step(self, batch, number):
        images, digits = batch
        self.log("accuracy", (self.layers(images).argmax(dim=1) == digits).float().mean())

    def on_validation_epoch_end(self):
        accuracy = self.trainer.callback_metrics["accuracy"]
        print(
            f"epoch {self.trainer.current_epoch} step {self.trainer.global_step} accuracy {accuracy:.4f}",
            flush=True,
        )

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--output", default="out/digits-lightning")
    arguments = parser.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    images, digits = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    elastic = ElasticCallback(
        DataLoader(TensorDataset(images[:1437], digits[:1437]), batch_size=16, shuffle=True)
    )
    trainer = lightning.Trainer(
        max_epochs=arguments.num_epochs,
        callbacks=[elastic],
        default_root_dir=arguments.output,
        gradient_clip_val=5.0,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Classifier(), elastic.loader, DataLoader(TensorDataset(images[1437:], digits[1437:]), batch_size=360)
    )


if __name__ == "__main__":
    main()
