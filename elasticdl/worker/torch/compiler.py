"""Optimizers without PyTorch's compiler, as long as nothing is compiled.

Some methods of `torch.optim.Optimizer` are not to be compiled. The first call of one of them imports the compiler, only
to tell it so, which takes as long as the import of all the rest of PyTorch. A worker that trains through parameter
servers makes an optimizer to see what it is, and calls no other method of it: it never needs the compiler.

As long as the compiler is not imported nothing can be compiled, so no function needs the mark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

_COMPILER = "torch._dynamo"
# Where PyTorch keeps the function that it calls instead.
_INSTEAD = "__dynamo_disable"
_METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def defer_compiler() -> None:
    """Prevents the import of the compiler when an optimizer is made, unless it is imported already."""
    if _COMPILER in sys.modules:
        return
    for name in _METHODS:
        method = getattr(torch.optim.Optimizer, name)
        function = getattr(method, "__wrapped__", None)
        # A PyTorch that does it in another way goes on doing it.
        if function is not None and not hasattr(function, _INSTEAD):
            setattr(function, _INSTEAD, _deferred(method, function))


def _deferred(method: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if _COMPILER not in sys.modules:
            return function(*args, **kwargs)
        # Another module has imported it, or is about to: from here on it is as PyTorch has it.
        if getattr(function, _INSTEAD, None) is call:
            delattr(function, _INSTEAD)
        return method(*args, **kwargs)

    return call
