"""For programs with the `Trainer` of Hugging Face Transformers."""
