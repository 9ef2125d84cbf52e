"""An optimizer is made without PyTorch's compiler; where that is imported, it is told what it has to leave alone."""

import subprocess
import sys

_BEGIN = """
import sys
import torch
from elasticdl.worker.torch.optimizer import make_optimizer

model = torch.nn.Linear(2, 2)
optimizer, _ = make_optimizer(lambda parameters: torch.optim.Adam(parameters), model)
optimizer.zero_grad()
assert "torch._dynamo" not in sys.modules
"""

_IMPORTED = """
import torch._dynamo

told = []
disable = torch._dynamo.disable
torch._dynamo.disable = lambda function, *more, **named: told.append(function.__name__) or disable(
    function, *more, **named
)
for _ in range(2):
    optimizer.zero_grad()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
assert told == ["zero_grad", "add_param_group"], told
assert len(optimizer.param_groups) == 3
"""


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_not_imported_for_an_optimizer() -> None:
    _run(_BEGIN)


def test_told_once_it_is_imported() -> None:
    _run(_BEGIN + _IMPORTED)
