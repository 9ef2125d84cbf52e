from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import BUCKET, open_bucket, s3_server


@pytest.fixture(scope="session")
def store() -> Iterator[dict[str, Any]]:
    with s3_server() as environment:
        yield {"environment": environment, "files": open_bucket(environment)}


@pytest.fixture
def bucket(store: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """An empty bucket, and a cache folder of its own. A file system whose paths begin with the bucket's name."""
    for name, value in store["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ELASTICDL_CACHE", str(tmp_path / "cache"))
    yield store["files"]
    store["files"].delete_dir_contents(BUCKET)
