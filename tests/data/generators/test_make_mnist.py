"""MNIST from its four idx files, and from the file that Keras publishes."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticdl.data.dataset import open_reader
from elasticdl.data.example import decode_example
from elasticdl.data.generators.bundled import make_mnist
from elasticdl.errors import UserError
from tests.data.conftest import ReadThrough

# Images and labels of each part.
Arrays = dict[str, tuple[NDArray[np.uint8], NDArray[np.uint8]]]


def idx(array: NDArray[Any], code: int = 0x08) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.tobytes()


@pytest.fixture
def arrays() -> Arrays:
    rng = np.random.default_rng(0)
    return {
        part: (rng.integers(0, 256, (count, 4, 3), np.uint8), rng.integers(0, 10, count, np.uint8))
        for part, count in (("train", 25), ("t10k", 7))
    }


@pytest.fixture(params=["", ".gz"])
def source(tmp_path: Path, arrays: Arrays, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    pack = gzip.compress if request.param else bytes
    for part, (images, labels) in arrays.items():
        (folder / f"{part}-images-idx3-ubyte{request.param}").write_bytes(pack(idx(images)))
        (folder / f"{part}-labels-idx1-ubyte{request.param}").write_bytes(pack(idx(labels)))
    return folder


def test_all_four_files(tmp_path: Path, source: Path, arrays: Arrays) -> None:
    made = make_mnist(source, tmp_path / "mnist", records_per_file=10)
    assert made.samples == {"train": 25, "test": 7}
    for part, name in (("train", "train"), ("test", "t10k")):
        reader = open_reader(str(tmp_path / "mnist" / part))
        images, labels = arrays[name]
        for record, image, label in zip(reader.read(0, len(reader)), images, labels, strict=True):
            features: dict[str, Any] = decode_example(record)
            assert features["image"].dtype == np.float32
            assert features["image"].tolist() == image.reshape(-1).astype(float).tolist()
            assert features["label"].tolist() == [label]
    names = [path.name for path in sorted((tmp_path / "mnist" / "train").iterdir())]
    files = [name for name in names if not name.startswith(".")]
    assert files == ["mnist-00000.recordio", "mnist-00001.recordio", "mnist-00002.recordio"]


@pytest.mark.parametrize("named", ["", "mnist.npz"])
def test_keras_file_gives_the_same_records(tmp_path: Path, source: Path, arrays: Arrays, named: str) -> None:
    keras = tmp_path / "keras"
    keras.mkdir()
    (x_train, y_train), (x_test, y_test) = arrays["train"], arrays["t10k"]
    np.savez(keras / "mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    made = make_mnist(keras / named, tmp_path / "ours")
    assert made.samples == make_mnist(source, tmp_path / "mnist").samples
    for part in ("train", "test"):
        ours, theirs = (open_reader(str(tmp_path / name / part)) for name in ("ours", "mnist"))
        assert list(ours.read(0, len(ours))) == list(theirs.read(0, len(theirs)))


def test_keras_file_without_labels_is_refused(tmp_path: Path, arrays: Arrays) -> None:
    images, labels = arrays["train"]
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images)
    with pytest.raises(UserError, match="y_test"):
        make_mnist(tmp_path, tmp_path / "mnist")
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels[1:], x_test=images, y_test=labels)
    with pytest.raises(UserError, match="25 images and 24 labels"):
        make_mnist(tmp_path, tmp_path / "mnist")


def test_keras_file_of_pickled_objects_is_refused(tmp_path: Path) -> None:
    pickled = np.array([{"not": "an image"}], dtype=object)
    np.savez(tmp_path / "mnist.npz", x_train=pickled, y_train=pickled, x_test=pickled, y_test=pickled)
    with pytest.raises(UserError, match="cannot be read as MNIST"):
        make_mnist(tmp_path, tmp_path / "mnist")


def test_idx_files_are_data_sets_themselves(source: Path, arrays: Arrays) -> None:
    path = next(source.glob("train-images*"))
    reader = open_reader(str(path))
    images, labels = arrays["train"]
    assert len(reader) == 25
    assert reader.metadata.column_dtypes == ("uint8", "int64")
    for record, image, label in zip(reader.read(3, 9), images[3:9], labels[3:9], strict=True):
        assert np.array_equal(record["image"], image)
        assert record["label"] == label


@pytest.mark.parametrize("missing", ["train-images", "t10k-labels"])
def test_a_missing_file_is_named(tmp_path: Path, source: Path, missing: str) -> None:
    next(source.glob(f"{missing}*")).unlink()
    with pytest.raises(UserError, match=missing):
        make_mnist(source, tmp_path / "mnist")
    assert not (tmp_path / "mnist").exists()


def test_a_source_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train-images"):
        make_mnist(tmp_path / "nowhere", tmp_path / "mnist")


def test_numbers_that_do_not_fit(tmp_path: Path, arrays: Arrays) -> None:
    images, labels = arrays["train"]
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels[:-1]))
    with pytest.raises(UserError, match=r"25 images, but .* has 24 labels"):
        open_reader(str(tmp_path / "train-images-idx3-ubyte"))


def test_truncated_idx_file_reports_missing_samples(
    tmp_path: Path, arrays: Arrays, read_through: ReadThrough
) -> None:
    images, _ = arrays["train"]
    path = tmp_path / "digits.idx"
    path.write_bytes(idx(images)[:-13])
    good, (bad,) = read_through(path)
    assert len(good) == 23
    assert (bad.start, bad.end, bad.where) == (23, 25, f"{path}, byte {16 + 23 * 12}")


def test_other_types_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(idx(np.array([[1.5, 2.5], [3.5, 4.5]], ">f4"), code=0x0D))
    reader = open_reader(str(path))
    assert [record["image"].tolist() for record in reader.read(0, 2)] == [[1.5, 2.5], [3.5, 4.5]]
    assert reader.metadata.column_dtypes[0] == "float32"
