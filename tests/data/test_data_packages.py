"""Fashion-MNIST from IDX files and from a Debian package, the protein rows, and FLamby's split."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedstein import data
from fedstein.data import fashion, fetch, flamby, mnist, protein, sources
from fedstein.data.debian import package_files
from fedstein.data.npz import content_sha256
from fedstein.errors import InputError

SHARED = Path(os.environ.get("FEDSTEIN_SHARED", Path(__file__).parents[2] / ".." / "shared")) / "data" / "heart"


def idx(values: np.ndarray) -> bytes:
    """A gzipped IDX file of bytes."""
    return gzip.compress(struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Fashion-MNIST with five training images and two test images."""
    monkeypatch.setenv("FEDSTEIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mnist, "TRAIN", 5)
    monkeypatch.setattr(mnist, "TEST", 2)
    draw = np.random.default_rng(0)
    made = {}
    for name in fashion.FILES:
        rows = 5 if name.startswith("train") else 2
        shape, most = ((rows, 28, 28), 256) if "images" in name else ((rows,), 10)
        made[name] = idx(draw.integers(0, most, shape).astype(np.uint8))
    arrays = fashion.from_idx(lambda name: made[name])
    source = replace(sources.SOURCES["fashion"], arrays_sha256=content_sha256(arrays))
    monkeypatch.setitem(sources.SOURCES, "fashion", source)
    return made


def debian_package(contents: dict[str, bytes]) -> bytes:
    """An ar archive with a compressed data.tar behind a member of odd length."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as archive:
        for path, content in contents.items():
            entry = tarfile.TarInfo(f"./{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    parts = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0"), ("data.tar.xz", stream.getvalue())):
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        parts += header + content + b"\n" * (len(content) % 2)
    return parts


def test_images_of_a_folder_become_the_dataset(files: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    data.get("fashion", folder=folder)
    got = data.load("fashion")
    assert (got.train_x.shape, got.test_x.shape, got.classes) == ((5, 784), (2, 784), 10)
    raw = np.frombuffer(gzip.decompress(files["t10k-images-idx3-ubyte.gz"]), np.uint8, offset=16)
    np.testing.assert_allclose(got.test_x.ravel(), raw / 255, atol=1e-7)
    with pytest.raises(InputError, match="the four IDX files in"):
        data.get("fashion", folder=tmp_path / "nowhere")
    with pytest.raises(InputError, match="--from goes with heart, contraception, exam, fashion, got it with 'mnist'"):
        data.get("mnist", folder=folder)


def test_a_debian_package_is_read_without_being_installed(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources.SOURCES["fashion"]
    package = debian_package({f"{source.folder}/{name}": content for name, content in files.items()})
    commands: list[list[str]] = []

    def fake_apt(command: list[str], folder: Path, progress: sources.Progress) -> None:
        commands.append(command)
        if command[0] != "apt-get":
            raise sources.Unreachable("no network")
        (folder / "some.deb").write_bytes(package)

    monkeypatch.setattr(sources, "run", fake_apt)
    fetch.get("fashion")
    assert commands[-1] == ["apt-get", "download", "dataset-fashion-mnist"]
    assert len(commands) == 2, "there is no wheel to try"
    assert len(data.load("fashion").train_y) == 5
    with pytest.raises(ValueError, match="expected usr/share/other in the package, got none"):
        package_files(package, ["usr/share/other"])
    with pytest.raises(ValueError, match="expected a Debian package, got another kind"):
        package_files(b"PK", [])
    with pytest.raises(ValueError, match=r"with data.tar, got none"):
        package_files(b"!<arch>\n", [])


@pytest.mark.parametrize("content", [b"plain", gzip.compress(b"\x00\x00\x0d\x01")], ids=["plain", "floats"])
def test_other_files_than_idx_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="expected a"):
        fashion.read_idx(content)


def test_protein_is_standardised_by_its_training_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protein, "ROWS", 50)
    draw = np.random.default_rng(0)
    arrays = protein.compact(draw.normal(5, 3, (50, 9)), draw.normal(8, 2, 50))
    got = protein.from_full(arrays)
    assert (len(got.train_y), len(got.test_y), got.task) == (40, 10, "regression")
    np.testing.assert_allclose(got.train_x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(got.train_y.std(), 1, rtol=1e-5)
    back = np.sort(np.concatenate([got.train_y, got.test_y]) * got.target_scale + got.target_mean)
    np.testing.assert_allclose(back, np.sort(arrays["rmsd"]), rtol=1e-5)
    with pytest.raises(ValueError, match="expected 50 rows of 9 measurements"):
        protein.compact(np.zeros((50, 8)), np.zeros(50))


def test_flambys_split_has_its_sizes_and_the_share_of_ill_patients() -> None:
    labels = np.repeat([0, 1], [164, 139])  # Cleveland
    train, test = flamby.flamby_split(labels)
    assert (len(train), len(test)) == (199, 104)
    assert labels[test].sum() == 48
    train, test = flamby.flamby_split(np.repeat([0, 1], [2, 44]))  # too few healthy patients to split them by share
    assert (len(train), len(test)) == (30, 16)
    assert sorted([*train, *test]) == list(range(46))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the four files are not on this machine")
def test_every_hospital_is_scaled_by_its_own_training_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTEIN_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="run: fedstein data get heart"):
        data.load("heart-flamby")
    assert data.get("heart-flamby", folder=SHARED) == tmp_path / "heart"
    got, info = data.load("heart-flamby"), data.DATASETS["heart-flamby"]
    assert got.client_of_row is not None
    assert np.bincount(got.client_of_row).tolist() == [199, 172, 30, 85]
    assert (len(got.test_y), len(got.feature_names)) == (info.test_rows, info.features)
    for client in range(4):
        mine = got.train_x[got.client_of_row == client].astype(float)
        np.testing.assert_allclose(mine.mean(axis=0), 0, atol=1e-5)
        spread = mine.std(axis=0, ddof=1)
        assert np.all((np.abs(spread - 1) < 1e-4) | (spread == 0))
