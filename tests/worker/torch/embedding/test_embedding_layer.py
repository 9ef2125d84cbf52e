"""`elasticdl.torch.Embedding` and `EmbeddingBag` by themselves: what they give and learn, for ids of any form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.errors import UserError

GENERATOR = torch.Generator().manual_seed(0)
SPARSE = torch.randint(-(2**63), 2**63 - 1, (20,), generator=GENERATOR)
PLACES = torch.randint(0, 20, (32, 3), generator=GENERATOR)
LABELS = torch.randn(32, 1, generator=GENERATOR)


class Network(nn.Module):
    """Uses one embedding twice."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding
        self.out = nn.Linear(24, 1)

    def forward(self, ids: Any) -> Any:
        both = torch.cat([self.embedding(ids), self.embedding(ids.flip(1))], dim=2)
        return self.out(both.flatten(1))


def rows_of(layer: Any, ids: Any) -> Any:
    with torch.no_grad():
        return layer(torch.as_tensor(ids))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, 0.1),
        lambda parameters: torch.optim.Adagrad(parameters, 0.1),
        lambda parameters: torch.optim.RMSprop(parameters, 0.01),
    ],
    ids=["sgd", "adagrad", "rmsprop"],
)
def test_a_plain_loop_trains_rows_as_pytorch_trains_its_own(optimizer: Callable[..., Any]) -> None:
    ours = elasticdl.torch.Embedding(4, initializer="normal")
    theirs = nn.Embedding.from_pretrained(rows_of(ours, SPARSE), freeze=False)
    models = [Network(ours), Network(theirs)]
    models[1].out.load_state_dict(models[0].out.state_dict())
    for model, ids in zip(models, (SPARSE[PLACES], PLACES), strict=True):
        made = optimizer(model.parameters())
        for _ in range(10):
            # All ids every time: PyTorch trains rows that took no part as well.
            made.zero_grad()
            nn.functional.mse_loss(model(ids), LABELS).backward()
            made.step()
    seen = PLACES.unique()
    np.testing.assert_allclose(
        rows_of(ours, SPARSE[seen]), theirs.weight.detach()[seen], rtol=1e-4, atol=1e-6
    )


def test_rows_are_what_they_are_whatever_is_usual() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        row = elasticdl.torch.Embedding(4, name="users")(torch.tensor([7, 8]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert row.dtype == torch.float32


def test_gradients_that_were_taken_away_are_not_applied() -> None:
    layer = elasticdl.torch.Embedding(4, initializer="normal")
    optimizer = torch.optim.SGD(layer.parameters(), 1.0)
    ids = torch.tensor([1, 2])
    before = rows_of(layer, ids)
    layer(ids).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    np.testing.assert_array_equal(rows_of(layer, ids), before)
    layer(ids).sum().backward()
    layer(ids).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(rows_of(layer, ids), before - 2.0, rtol=1e-6)


def test_bags_learn_and_so_do_their_weights() -> None:
    layer = elasticdl.torch.EmbeddingBag(4, mode="mean", initializer="normal")
    ids, weights = torch.tensor([[1, 2], [2, 3]]), torch.ones(2, 2, requires_grad=True)
    optimizer = torch.optim.SGD(layer.parameters(), 1.0)
    before = rows_of(elasticdl.torch.Embedding(4, initializer="normal"), [1, 2, 3])
    layer(ids, weights=weights).sum().backward()
    optimizer.step()
    assert weights.grad is not None
    assert weights.grad.shape == ids.shape
    after = [layer(torch.tensor([[number]])).detach()[0] for number in (1, 2, 3)]
    expected = before - torch.tensor([[0.5], [1.0], [0.5]])
    torch.testing.assert_close(torch.stack(after), expected)


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
def test_weights_that_are_all_zero_have_gradients(mode: str) -> None:
    layer = elasticdl.torch.EmbeddingBag(4, mode=mode, initializer="normal")
    weights = torch.zeros(1, 2, requires_grad=True)
    bag = layer(torch.tensor([[1, 2]]), weights=weights)
    bag.sum().backward()
    assert not bag.any()
    assert weights.grad is not None
    torch.testing.assert_close(weights.grad[0], layer(torch.tensor([[1], [2]])).detach().sum(1))


def test_nested_ids_give_nested_rows() -> None:
    layer = elasticdl.torch.Embedding(2, initializer="normal")
    parts = [torch.tensor([1, 2]), torch.tensor([3])]
    rows = layer(torch.nested.nested_tensor(parts, layout=torch.jagged)).unbind()
    torch.testing.assert_close(rows[0], layer(parts[0]))
    torch.testing.assert_close(rows[1], layer(parts[1]))


def test_a_state_dict_has_the_rows(tmp_path: Any) -> None:
    model = Network(elasticdl.torch.Embedding(4))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    nn.functional.mse_loss(model(SPARSE[PLACES]), LABELS).backward()
    optimizer.step()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = Network(elasticdl.torch.Embedding(4))
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    torch.testing.assert_close(other(SPARSE[PLACES]), model(SPARSE[PLACES]), rtol=0, atol=0)


def test_bags_that_do_not_fit_are_rejected() -> None:
    bag = elasticdl.torch.EmbeddingBag(4)
    with pytest.raises(UserError, match=r"shape \[3\]"):
        bag(torch.tensor([1, 2, 3]))
    with pytest.raises(UserError, match="Offsets"):
        bag(torch.tensor([1, 2, 3]), torch.tensor([0, 5]))
    with pytest.raises(UserError, match="other sizes"):
        bag([[1, 2]], weights=[[1.0]])


def clip(model: Any) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def change_nothing(model: Any) -> None:
    """As most loops do."""


@pytest.mark.parametrize("change", [clip, change_nothing])
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_clipped_without_those_of_rows_warn_once(
    change: Callable[[Any], None], to_none: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = Network(elasticdl.torch.Embedding(4, name="users"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=to_none)
        nn.functional.mse_loss(model(SPARSE[PLACES]), LABELS).backward()
        change(model)
        optimizer.step()
    warnings = [
        record.getMessage() for record in caplog.records if "the rows of users" in record.getMessage()
    ]
    assert len(warnings) == (1 if change is clip else 0)
