"""What `--model_zoo` stands for: a folder, or the zoo that comes with elasticdl."""

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.zoo_folder import zoo_folder

ROOT = Path(__file__).parents[2]


def test_name_of_installed_zoo_in_checkout_is_folder_model_zoo() -> None:
    assert zoo_folder("elasticdl.zoo") == ROOT / "model_zoo"


def test_existing_folder_comes_before_installed_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elasticdl.zoo").mkdir()
    assert zoo_folder("elasticdl.zoo") == Path("elasticdl.zoo")


def test_missing_folder_raises_error_naming_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model zoo folder") as raised:
        zoo_folder(str(tmp_path / "missing"))
    assert "elasticdl.zoo" in raised.value.hint
