"""An optimizer is made without PyTorch's compiler; where that is imported, its methods are marked for it."""

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

marked = []
disable = torch._dynamo.disable
torch._dynamo.disable = lambda function, *more, **named: marked.append(function.__name__) or disable(
    function, *more, **named
)
for _ in range(2):
    optimizer.zero_grad()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
assert marked == ["zero_grad", "add_param_group"], marked
assert len(optimizer.param_groups) == 3
"""


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_not_imported_for_an_optimizer() -> None:
    _run(_BEGIN)


def test_methods_are_marked_once_the_compiler_is_imported() -> None:
    _run(_BEGIN + _IMPORTED)
