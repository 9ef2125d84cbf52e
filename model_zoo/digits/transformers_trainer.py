"""Handwritten digits by a small vision transformer of Hugging Face and its `Trainer`; workers may come and go.

    elasticdl train --job_command="python -m model_zoo.digits.transformers_trainer --output=out/digits-vit" \\
        --num_workers=2 --distribution_strategy=AllreduceStrategy --job_name=digits-vit

The model is made here, so nothing is downloaded. `python -m model_zoo.digits.transformers_trainer` alone trains in one
process.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification

from elasticai_api.transformers.trainer import ElasticTrainer


class Digits(Dataset):
    def __init__(self, begin, end):
        pixels, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(pixels[begin:end] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
        self.labels = labels[begin:end].tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def accuracy(prediction):
    found = prediction.predictions.argmax(axis=1)
    return {"accuracy": float((found == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_epochs", type=int, default=3)
    parser.add_argument("--output", default="out/digits-vit")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=4,
            num_channels=1,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            num_labels=10,
        )
    )
    trainer = ElasticTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=arguments.output,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=360,
            num_train_epochs=arguments.num_epochs,
            learning_rate=0.01,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Digits(0, 1437),
        eval_dataset=Digits(1437, 1797),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model()
    found = trainer.evaluate()["eval_accuracy"]
    print(f"step {trainer.state.global_step} epoch {trainer.state.epoch} accuracy {found:.4f}", flush=True)


if __name__ == "__main__":
    main()
