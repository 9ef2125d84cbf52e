"""The ledger of a checkpoint is covered by a checksum: damage is an error, never taken for an account of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, read_checkpoint, write_manifest

LEDGER = {"datasets": {"training": {"epoch": 1, "done": 500, "where": "données"}}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_manifest(tmp_path, Manifest(step=10, files=()), LEDGER)
    return tmp_path


def test_ledger_of_checkpoint_is_read(place: Path) -> None:
    assert read_checkpoint(place).ledger() == LEDGER


def test_any_flipped_bit(place: Path) -> None:
    file = place / "ledger.json"
    whole = file.read_bytes()
    for position in range(len(whole)):
        # The lowest bit makes another number of most digits: JSON as before.
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(UserError, match=r"is damaged: its ledger\.json cannot be read") as error:
            read_checkpoint(place).ledger()
        assert "older checkpoint" in error.value.hint


def test_one_that_is_missing(place: Path) -> None:
    (place / "ledger.json").unlink()
    with pytest.raises(UserError, match=r"is damaged: its ledger\.json cannot be read .*No such file"):
        read_checkpoint(place).ledger()


def test_checkpoint_without_ledger_returns_none(tmp_path: Path) -> None:
    """As in an exported model."""
    write_manifest(tmp_path, Manifest(step=0, files=()), None)
    assert read_checkpoint(tmp_path).ledger() is None


def test_of_an_earlier_version(place: Path) -> None:
    """Which had no checksum of it, and no other format."""
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest.pop("ledger_crc32") is not None
    assert manifest["format"] == 1
    (place / "manifest.json").write_text(json.dumps(manifest))
    assert read_checkpoint(place).ledger() == LEDGER
    (place / "ledger.json").unlink()
    assert read_checkpoint(place).ledger() is None
