"""For programs with the `Trainer` of PyTorch Lightning."""
