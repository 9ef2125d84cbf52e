"""Which layer has which table: by its name, by its place, or by that of a table that is shared on purpose."""

import pytest

from elasticdl.errors import UserError
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.lookups import Declaration, as_initializer, declared_tables


def test_names_and_places() -> None:
    layers = [
        ("first", Declaration(width=4)),
        ("second", Declaration(width=4, name="users")),
        ("third", Declaration(width=4, table="users")),
        ("fourth", Declaration(width=8, table="items")),
        ("fifth", Declaration(width=8, table="items")),
    ]
    assert [spec.name for spec in declared_tables(layers)] == ["first", "users", "users", "items", "items"]


def test_one_name_by_accident() -> None:
    with pytest.raises(UserError, match="Two embedding layers have the name users") as raised:
        declared_tables(
            [("a", Declaration(width=4, name="users")), ("b", Declaration(width=4, name="users"))]
        )
    assert "table='users'" in raised.value.hint


def test_a_place_that_is_somebodys_name() -> None:
    with pytest.raises(UserError, match="have the name a"):
        declared_tables([("a", Declaration(width=4)), ("b", Declaration(width=4, name="a"))])


@pytest.mark.parametrize(
    ("other", "describe_error"),
    [
        (Declaration(width=8, table="users"), "width=4 and the other width=8"),
        (Declaration(width=4, table="users", admit_after=3), "admit_after=1 and the other admit_after=3"),
        (
            Declaration(width=4, table="users", initializer=Initializer(kind="zeros")),
            "initializer=uniform and the other initializer=zeros",
        ),
    ],
)
def test_shared_by_layers_that_do_not_agree(other: Declaration, describe_error: str) -> None:
    with pytest.raises(UserError, match=describe_error):
        declared_tables([("a", Declaration(width=4, table="users")), ("b", other)])


def test_initializers_by_kind_and_options() -> None:
    assert as_initializer("zeros") == Initializer(kind="zeros")
    assert as_initializer({"kind": "normal", "stddev": 1}) == Initializer(
        kind="normal", options={"stddev": 1.0}
    )
    with pytest.raises(UserError, match="sttdev"):
        as_initializer({"kind": "normal", "sttdev": 1})
    with pytest.raises(UserError, match="3"):
        as_initializer(3)  # type: ignore[arg-type]
