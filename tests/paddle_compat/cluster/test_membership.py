"""Which members make an attempt, and when it has lost one."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.membership import Member, Phase, find_loss, find_quorum


def member(name: str, address: str = "", phase: Phase = Phase.RUNNING) -> Member:
    return Member(uid=f"uid-{name}", name=name, address=address, phase=phase)


def test_numbers_are_ranks_of_the_addresses_as_text() -> None:
    members = [member("a", "10.0.0.9"), member("b", "10.0.0.10"), member("c", "10.0.0.1")]
    quorum = find_quorum(members, wanted=3)
    assert quorum is not None
    assert quorum.addresses == ["10.0.0.1", "10.0.0.10", "10.0.0.9"]
    assert quorum.number_of("uid-b") == 1


@pytest.mark.parametrize(
    "last", [member("c", "", Phase.PENDING), member("c", ""), member("c", "10.0.0.3", Phase.FAILED)]
)
def test_no_quorum_until_all_run_and_have_addresses(last: Member) -> None:
    assert find_quorum([member("a", "10.0.0.1"), member("b", "10.0.0.2"), last], wanted=3) is None


def test_failed_pods_and_their_replacements_make_a_quorum() -> None:
    failed = member("old", "10.0.0.1", Phase.FAILED)
    quorum = find_quorum([failed, member("new", "10.0.0.3"), member("b", "10.0.0.2")], wanted=2)
    assert quorum is not None
    assert quorum.addresses == ["10.0.0.2", "10.0.0.3"]


def test_attempt_has_another_name_after_a_replacement() -> None:
    first = find_quorum([member("a", "10.0.0.1"), member("b", "10.0.0.2")], wanted=2)
    second = find_quorum([member("a", "10.0.0.1"), member("c", "10.0.0.2")], wanted=2)
    assert first is not None
    assert second is not None
    assert first.attempt != second.attempt


def test_more_pods_than_gradient_number_is_an_error() -> None:
    with pytest.raises(UserError, match="CONF_PADDLE_GRADIENT_NUM is 1, but the Job has 2 pods: a, b"):
        find_quorum([member("a", "10.0.0.1"), member("b", "10.0.0.2")], wanted=1)


def test_pods_that_share_an_address_are_an_error() -> None:
    with pytest.raises(UserError) as caught:
        find_quorum([member("a", "10.0.0.1"), member("b", "10.0.0.1")], wanted=2)
    assert "hostNetwork" in caught.value.hint


def test_loss_names_members_that_are_gone_or_have_failed() -> None:
    a, b, c = (member(name, f"10.0.0.{number}") for number, name in enumerate("abc", start=1))
    quorum = find_quorum([a, b, c], wanted=3)
    assert quorum is not None
    assert find_loss(quorum, [a, b, member("c", "10.0.0.3", Phase.SUCCEEDED)]) == ""
    assert find_loss(quorum, [a, member("b", "10.0.0.2", Phase.FAILED)]) == (
        "b (10.0.0.2) has failed, c (10.0.0.3) is gone"
    )
