"""What runs of the benchmarks have measured, kept, and the page docs/performance.md that is made of it."""
