"""For programs in Paddle: data sets over shards, a callback that reports batches, and fault-tolerant trainers."""
