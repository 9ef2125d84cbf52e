"""Programs for pods that go as far as a test lets them: see `gate.py`."""
