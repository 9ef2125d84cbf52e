"""Jobs of this machine: each has a folder, and runs inside the process that submitted it."""
