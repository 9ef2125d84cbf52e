"""`paddle train`, `paddle pserver` and `paddle version` on top of Paddle 2.6.2."""
