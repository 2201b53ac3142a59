"""Atomic files: each is written under another name, synced to disk, and then renamed, so no file is ever incomplete."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedstein.errors import InputError

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk (full, read-only, not a folder) into one sentence for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise InputError(
                f"no room left to write in {folder} ({os.strerror(error.errno or 0).lower()}); free some space, "
                f"then continue with: fedstein resume {folder}"
            ) from error
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise InputError(f"cannot write in {folder} ({reason}); choose another place with --out") from error


@contextmanager
def folder_lock(folder: Path, *, wait: bool) -> Iterator[None]:
    """Lock a folder, where the system has locks. The lock ends with the process, however the process ends.

    Raises ``BlockingIOError`` if another process has the lock and ``wait`` is false.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def folder_path(path: Any) -> Path:
    """Return the path of a folder that a user has passed.

    Args:
        path: A string or a path.

    Returns:
        The path.

    Raises:
        InputError: It is neither.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InputError(f"expected the path of a folder, as text or as a Path, got {path!r}")
    return Path(path)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` in one step. After a failure the old file is unchanged, and no temporary file is left."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename durable, where the system lets folders be synced."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain(value: Any) -> Any:
    """Convert values to types that JSON has; non-finite numbers become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path, what: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"expected {what} at {path}, found none") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged: it is not the JSON of {what} ({error})") from None


def pack(arrays: Mapping[str, Any]) -> bytes:
    """Write named arrays in the safetensors format."""
    return save_tensors({name: np.asarray(array, order="C") for name, array in arrays.items()})


def unpack(content: bytes, path: Path) -> dict[str, np.ndarray]:
    try:
        return load_tensors(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{path} is damaged: it is not a safetensors file ({error})") from None
