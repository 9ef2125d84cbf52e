"""Configurations and commands need Paddle, which an environment may lack; the rest of the package does not."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("paddle") else ["command", "config"]
