"""An optimizer is made from a name, a flavor and options; what does not exist is named, with the nearest right word."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.ps.embedding.optimizers import RULES, make_optimizer
from elasticdl.wire import ps_pb2


def make(name: str, flavor: str, **options: float) -> None:
    make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor=flavor, options=options))


@pytest.mark.parametrize(
    ("flavor", "name"), [(flavor, name) for flavor, rules in RULES.items() for name in rules]
)
def test_every_optimizer_takes_every_option_it_names(flavor: str, name: str) -> None:
    make(name, flavor, **RULES[flavor][name].defaults)
    make(name.upper(), flavor)


@pytest.mark.parametrize(
    ("name", "flavor", "options", "message"),
    [
        ("adamm", "keras", {}, "no optimizer 'adamm' for keras. Did you mean adam"),
        ("Ftrl", "torch", {}, "no optimizer 'Ftrl' for torch"),
        ("adam", "kears", {}, "Unknown optimizer flavor 'kears'. Did you mean keras"),
        ("adam", "", {}, "Unknown optimizer flavor ''"),
        ("adam", "keras", {"beta1": 0.9}, "no option 'beta1' for keras. Did you mean beta_1"),
        ("sgd", "keras", {"dampening": 0.9}, "no option 'dampening' for keras"),
        ("adam", "torch", {"epsilom": 0.9}, "no option 'epsilom' for torch. Did you mean epsilon"),
        ("adam", "torch", {"epsilon": float("nan")}, "option epsilon of the optimizer adam is nan"),
        ("adam", "torch", {"epsilon": float("inf")}, "option epsilon of the optimizer adam is inf"),
    ],
)
def test_unknown_optimizer_flavor_or_option_is_named(
    name: str, flavor: str, options: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(name, flavor, **options)
