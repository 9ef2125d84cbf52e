"""The stored results of benchmark runs, and the page docs/performance.md that is generated from them."""
