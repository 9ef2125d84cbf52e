"""What Paddle's runtime reads."""

from __future__ import annotations

import pytest

from elasticdl.master.programs.launchers.launcher import NodePlace
from elasticdl.master.programs.launchers.paddle import PaddleLauncher

ADDRESSES = {"ps": ["h:1", "h:2"], "worker": ["h:3", "h:4", "h:5"]}
TARGETS = {"ps": 2, "worker": 2}


def environment(role: str, slot: int) -> dict[str, str]:
    place = NodePlace(role=role, slot=slot, addresses=ADDRESSES, targets=TARGETS)
    return PaddleLauncher().environment(place)


def test_worker_gets_its_own_address_and_its_peers() -> None:
    assert environment("worker", 1) == {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": "h:3,h:4",
        "PADDLE_PSERVERS_IP_PORT_LIST": "h:1,h:2",
        "PADDLE_CURRENT_ENDPOINT": "h:4",
        "PADDLE_PORT": "4",
        "POD_IP": "h",
    }


def test_parameter_server_has_the_role_pserver() -> None:
    given = environment("ps", 0)
    assert (given["TRAINING_ROLE"], given["PADDLE_CURRENT_ENDPOINT"]) == ("PSERVER", "h:1")


def test_worker_beyond_the_target_is_among_its_own_peers() -> None:
    assert environment("worker", 2)["PADDLE_TRAINER_ENDPOINTS"] == "h:3,h:4,h:5"


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_node_without_an_address_gets_nothing(role: str) -> None:
    assert environment(role, 3) == {}
