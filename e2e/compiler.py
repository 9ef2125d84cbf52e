"""PyTorch without its compiler, for programs that compile nothing.

Its optimizers import the compiler when they are made, to switch it off: that takes as long as the import of all the
rest, in each of a test's processes. Here they are given one that cannot do anything else.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch


def leave_out() -> None:
    """Before the first optimizer is made. Nothing, if the program has imported the compiler itself."""
    if "torch._dynamo" in sys.modules:
        return
    compiler: Any = types.ModuleType("torch._dynamo")
    compiler.disable = lambda function, *_, **__: function
    compiler.graph_break = lambda *_, **__: None
    # Lightning asks whether a module is one that was compiled.
    compiler.OptimizedModule = type("OptimizedModule", (), {})
    sys.modules["torch._dynamo"] = torch._dynamo = compiler
