"""A real S3 server on this machine, for tests of data and checkpoints at URLs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BUCKET = "bucket"


@contextlib.contextmanager
def s3_server(port: int = 0) -> Iterator[dict[str, str]]:
    """Yields the environment in which `s3://bucket` is a bucket of it."""
    # Imported here: most tests of the folder do not need it.
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        host, bound = server.get_host_and_port()
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{bound}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        server.stop()


def open_bucket(environment: dict[str, str]) -> Any:
    """Makes the bucket. Returns its file system, whose paths begin with the name of the bucket."""
    from pyarrow.fs import S3FileSystem

    filesystem = S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
        allow_bucket_creation=True,
    )
    filesystem.create_dir(BUCKET)
    return filesystem


def put(filesystem: Any, folder: Path, place: str) -> None:
    """Copies a folder below the bucket."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        with filesystem.open_output_stream(
            f"{BUCKET}/{place}/{file.relative_to(folder)}", compression=None
        ) as sink:
            sink.write(file.read_bytes())


def names(filesystem: Any, place: str) -> list[str]:
    """All objects below a place, relative to it."""
    from pyarrow.fs import FileSelector, FileType

    root = f"{BUCKET}/{place}"
    infos = filesystem.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
    return sorted(info.path.removeprefix(f"{root}/") for info in infos if info.type == FileType.File)
