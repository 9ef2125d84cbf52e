"""From what exists to what is to be done: pure functions over one job at a time."""
