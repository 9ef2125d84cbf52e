"""How the process of a parameter server ends when something that the user can put right is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR
from elasticdl.ps.__main__ import _serve, settings_of
from elasticdl.ps.server import membership
from elasticdl.ps.server.identity import Identity
from elasticdl.ps.server.membership import Member
from elasticdl.ps.server.parameter_server import ParameterServer


def test_definition_error_has_its_exit_code_without_master(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_TELLING_SECONDS", 0.05)
    identity = Identity(node="ps-0", number=0, master_address="127.0.0.1:1", token=token)
    member = Member(identity, ParameterServer(token=token), settings_of)

    def fail(*given: Any) -> None:
        raise UserError("the checkpoint is damaged")

    monkeypatch.setattr(member, "run", fail)
    assert _serve(member) == EXIT_DEFINITION_ERROR
    member.close()
