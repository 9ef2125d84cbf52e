"""The data job of the guide: OUT_DIR with a folder of data for each node, the configurations, and `output`.

Idempotent: a second run finds the data complete and changes nothing. Atomic: each folder is written beside its place
and renamed, and `.data.json` comes last; a run that was killed is repeated from the start.

Variables
    OUT_DIR, SPLIT_COUNT     as in the guide
    QUICK_START_DATA         a file or URL with lines of a label (0, 1), a tab and words; generated without it
    RECOMMENDATION_DATA      a folder, zip archive or URL with the files of MovieLens 1M; generated without it
    DATA_SEED, DATA_REVIEWS, DATA_RATINGS    of generated data
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster import sources
from elasticdl.paddle_compat.cluster.arguments import shortened, whole_number

log = logging.getLogger("elasticdl.paddle")

DEMOS = Path(__file__).resolve().parents[1] / "demos"
_GUIDE = {"OUT_DIR": "/home/work/mfs/paddle-cluster-job", "SPLIT_COUNT": "3"}
_MARK = ".data.json"
# A volume that is not writable for this user; a file where a folder is to be.
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT)


@dataclass(frozen=True, kw_only=True)
class DataJob:
    """The data to generate."""

    out_dir: Path
    split_count: int
    seed: int = 0
    quick_start: str = ""
    recommendation: str = ""
    sizes: sources.Sizes = field(default_factory=sources.Sizes)

    def run(self) -> bool:
        """Returns whether anything had to be made."""
        try:
            return self._run()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(
                    f"There is no space left on the volume of {self.out_dir}.",
                    hint="Free some and run the data job again.",
                ) from error
            if error.errno not in _NOT_WRITABLE:
                raise
            raise UserError(
                f"{self.out_dir} (OUT_DIR) cannot be written: {error.filename}: {error.strerror}.",
                hint=f"Choose another OUT_DIR, or let the user {os.getuid()} write there.",
            ) from error

    def _run(self) -> bool:
        wanted = {
            "split_count": self.split_count,
            "seed": self.seed,
            "quick_start": self.quick_start or f"generated {self.sizes.reviews}",
            "recommendation": self.recommendation or f"generated {self.sizes.ratings}",
        }
        mark = self.out_dir / _MARK
        if mark.is_file():
            made = json.loads(mark.read_text())
            if made == wanted:
                log.info("The data in %s is complete", self.out_dir)
                (self.out_dir / "output").mkdir(exist_ok=True)
                return False
            differing = ", ".join(
                f"{name} {made.get(name)!r} in place of {value!r}"
                for name, value in wanted.items()
                if made.get(name) != value
            )
            raise UserError(
                f"{self.out_dir} has other data: {differing}.",
                hint="Choose another OUT_DIR, or remove this one.",
            )
        self._make()
        self._write(mark, json.dumps(wanted))
        return True

    def _make(self) -> None:
        reviews = (
            sources.reviews(sources.read_reviews(self.quick_start), self.quick_start)
            if self.quick_start
            else sources.reviews(sources.generated_reviews(self.sizes, self.seed), "generated reviews")
        )
        ratings = (
            sources.ratings(sources.read_ratings(self.recommendation), self.recommendation)
            if self.recommendation
            else sources.ratings(sources.generated_ratings(self.sizes, self.seed), "generated ratings")
        )
        for name, data in (("quick_start", reviews), ("recommendation", ratings)):
            if len(data.train) < self.split_count:
                raise UserError(
                    f"{name} has {len(data.train)} samples, fewer than SPLIT_COUNT={self.split_count}."
                )
        self.out_dir.mkdir(parents=True, exist_ok=True)
        for left in self.out_dir.glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True)
        for number in range(self.split_count):
            part = self._part()
            _write_data(part / "data" / "quick_start", reviews, number, self.split_count)
            _write_data(part / "data" / "recommendation", ratings, number, self.split_count)
            self._publish(part, str(number))
        for demo in ("quick_start", "recommendation"):
            part = self._part()
            shutil.copytree(
                DEMOS / demo, part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
            )
            self._publish(part, demo)
        (self.out_dir / "output").mkdir(exist_ok=True)

    def _part(self) -> Path:
        part = self.out_dir / f".{uuid.uuid4().hex}.part"
        part.mkdir()
        return part

    def _publish(self, part: Path, name: str) -> None:
        target = self.out_dir / name
        if target.exists():
            # Left by a killed run; the mark says that nothing depends on it yet.
            old = self._part()
            target.rename(old / name)
            shutil.rmtree(old)
        part.rename(target)

    def _write(self, path: Path, text: str) -> None:
        part = path.with_suffix(".part")
        with part.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)


def _write_data(folder: Path, data: sources.TextData, number: int, count: int) -> None:
    folder.mkdir(parents=True)
    own = data.train[number::count]
    place = f"data/{folder.name}"
    files = {
        **data.files,
        "train.txt": "".join(f"{line}\n" for line in own),
        "test.txt": "".join(f"{line}\n" for line in data.test),
        "train.list": f"{place}/train.txt\n",
        "test.list": f"{place}/test.txt\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def read_data_job(environment: Mapping[str, str]) -> DataJob:
    """Raises one `UserError` that names every variable that is missing or wrong."""
    wrong = [
        f"{name} is not set (the guide: {value})"
        for name, value in _GUIDE.items()
        if not environment.get(name)
    ]
    defaults = sources.Sizes()
    numbers = {"DATA_SEED": 0, "DATA_REVIEWS": defaults.reviews, "DATA_RATINGS": defaults.ratings}
    found = {}
    for name, default in (*numbers.items(), ("SPLIT_COUNT", 1)):
        text = environment.get(name) or str(default)
        least = 0 if name == "DATA_SEED" else 1
        number = whole_number(text)
        if number is None or number < least:
            guide = f" (the guide: {_GUIDE[name]})" if name in _GUIDE else ""
            wrong.append(f"{name} must be a whole number of at least {least}, not {shortened(text)}{guide}")
        else:
            found[name] = number
    if wrong:
        raise UserError(
            "; ".join(wrong) + ".",
            hint="Set it under `env` of the container in the Job's YAML, or as a flag: --out_dir, --split_count.",
        )
    return DataJob(
        out_dir=Path(environment["OUT_DIR"]),
        split_count=found["SPLIT_COUNT"],
        seed=found["DATA_SEED"],
        quick_start=environment.get("QUICK_START_DATA", ""),
        recommendation=environment.get("RECOMMENDATION_DATA", ""),
        sizes=sources.Sizes(reviews=found["DATA_REVIEWS"], ratings=found["DATA_RATINGS"]),
    )


def check_volume(out_dir: Path, *, root: Path = Path("/"), mounts: Path = Path("/proc/mounts")) -> None:
    """Raises `UserError` in a container whose OUT_DIR is on no volume: the data would be lost with the container.

    The YAML that the guide prints mounts the claim at /mnt and writes to /home/work/mfs.
    """
    existing = out_dir.absolute()
    while not existing.exists():
        existing = existing.parent
    if existing.stat().st_dev != root.stat().st_dev:
        return
    system = ("/proc", "/sys", "/dev", "/etc/", "/run/secrets", "/var/run/secrets")
    volumes = [
        fields[1]
        for fields in (line.split() for line in mounts.read_text().splitlines())
        if fields[1] != "/" and not fields[1].startswith(system)
    ]
    raise UserError(
        f"OUT_DIR={out_dir} is on no volume: the data would be lost with the container. "
        f"Volumes are mounted at {', '.join(volumes) or 'no place'}.",
        hint=f"Mount the volume above OUT_DIR, with mountPath: {out_dir.parent} (the YAML printed in the guide says "
        "/mnt), or set OUT_DIR to a folder of a volume.",
    )
