"""The full datasets: downloaded once into the cache folder of the user, and verified each time they are read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedstein.data import fashion, sources
from fedstein.data.dataset import Dataset
from fedstein.data.grouped import GROUPED, get_grouped
from fedstein.data.npz import content_sha256, npz_bytes, read_npz, write_atomic
from fedstein.data.sources import SOURCES, Progress, Source, Unreachable, Way
from fedstein.errors import InputError

FILES_OF = {"heart-flamby": "heart"}  # datasets that are made from the files of another one


def cache_folder() -> Path:
    """Return $FEDSTEIN_CACHE, or $XDG_CACHE_HOME/fedstein, or ~/.cache/fedstein: the first that is set."""
    if own := os.environ.get("FEDSTEIN_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "fedstein"
    return Path.home() / ".cache" / "fedstein"


def cache_path(name: str) -> Path:
    """Return the path of a dataset in the cache folder: a file, or the folder with its files.

    Args:
        name: The name of the dataset. The ending ``-full`` of a full dataset may be left out.

    Raises:
        InputError: If there is no such dataset to download.
    """
    name = FILES_OF.get(name, name)
    return cache_folder() / (name if name in GROUPED else f"{_source(name).name}.npz")


def get(
    name: str,
    *,
    progress: Progress | None = None,
    ways: Sequence[Way] | None = None,
    folder: Path | None = None,
) -> Path:
    """Fetch a dataset, unless the cache holds an undamaged copy.

    Args:
        name: The name of the dataset. The ending ``-full`` of a full dataset may be left out.
        progress: Called with lines of text for the user.
        ways: The download methods to try in order; by default ``sources.WAYS``.
        folder: A folder with the original files of the dataset; None downloads them.

    Returns:
        The path of the file, or of the folder with the files, in the cache.

    Raises:
        InputError: If the name is unknown, every download method fails, or the cache folder is not writable.
    """
    name = FILES_OF.get(name, name)
    if name in GROUPED:
        return get_grouped(name, cache_folder(), folder, progress or _silent)
    source, path, say = _source(name), cache_path(name), progress or _silent
    if folder is not None and not source.debian:
        raise InputError(f"--from goes with {', '.join([*GROUPED, 'fashion'])}, got it with {name!r}; leave it out")
    if folder is None and path.exists():
        try:
            _read(source, path)
        except ValueError as error:
            say(f"{source.name}: {path} is damaged ({error}); fetching it again")
        else:
            say(f"{source.name}: already in {path}")
            return path
    tried = [_of_folder(folder)] if folder is not None else sources.WAYS if ways is None else ways
    arrays = _fetch(source, say, tried)
    content = npz_bytes(arrays, level=6)
    try:
        write_atomic(path, content)
    except OSError as error:
        raise InputError(
            f"expected a cache folder that can be written, got {path.parent} ({error.strerror}); set FEDSTEIN_CACHE"
        ) from error
    say(f"{source.name}: saved {len(content) / 1e6:.1f} MB to {path}")
    return path


def load_full(name: str) -> Dataset:
    """Load a full dataset from the cache.

    Args:
        name: The name of the dataset.

    Returns:
        The dataset.

    Raises:
        InputError: If the dataset was not downloaded, or if the file is damaged.
    """
    source, path = _source(name), cache_path(name)
    short = source.name.removesuffix("-full")
    if not path.exists():
        raise InputError(f"expected the dataset {source.name} in {path}, got no file; run: fedstein data get {short}")
    try:
        arrays = _read(source, path)
    except ValueError as error:
        raise InputError(
            f"expected the dataset {source.name} in {path}, got a damaged file ({error}); "
            f"run: fedstein data get {short}"
        ) from error
    return source.load(arrays)


def _fetch(source: Source, say: Progress, ways: Sequence[Way]) -> dict[str, np.ndarray]:
    reasons = []
    for way in ways:
        label = way.label(source)
        if not label:
            continue
        say(f"{source.name}: trying {label}")
        with tempfile.TemporaryDirectory(prefix="fedstein-", ignore_cleanup_errors=True) as folder:
            try:
                arrays = way.fetch(source, Path(folder), say)
                got = content_sha256(arrays)
                if got != source.arrays_sha256:
                    raise Unreachable(f"other contents: sha256 {got[:12]}..., expected {source.arrays_sha256[:12]}...")
                return arrays
            except (Unreachable, OSError, ValueError) as error:
                reasons.append(f"{label} ({error})")
                say(f"{source.name}: {label} did not work: {error}")
    raise InputError(
        f"{source.name} could not be downloaded in any of {len(reasons)} ways: {'; '.join(reasons)}. "
        "Check the network or proxy settings and try again"
    )


def _of_folder(folder: Path) -> Way:
    """Read the IDX files from a folder instead of downloading them."""
    place = folder.expanduser()
    return Way(
        lambda source: f"the four IDX files in {folder}",
        lambda source, temporary, say: fashion.from_idx(lambda name: (place / name).read_bytes()),
    )


def _read(source: Source, path: Path) -> dict[str, np.ndarray]:
    try:
        arrays = read_npz(path)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if content_sha256(arrays) != source.arrays_sha256:
        raise ValueError("wrong checksum")
    return arrays


def _source(name: str) -> Source:
    full = name if name.endswith("-full") or name in SOURCES else f"{name}-full"
    if full not in SOURCES:
        raise InputError(
            f"expected one of {', '.join([*SOURCES, *GROUPED])} to download, got {name!r}; the other datasets "
            "need no download"
        )
    return SOURCES[full]


def _silent(line: str) -> None:
    pass
