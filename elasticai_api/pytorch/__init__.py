"""For programs in PyTorch: data loading by shards, and elastic all-reduce."""
