"""NPZ files. Equal arrays give equal bytes, a file is replaced atomically, and nothing is unpickled."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np


def npz_bytes(arrays: dict[str, np.ndarray], level: int = 9) -> bytes:
    """Encode arrays as a compressed NPZ file, with fixed timestamps and sorted names.

    Args:
        arrays: The named arrays.
        level: The compression level, 1 to 9.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(arrays[name]), version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, member.getvalue(), compresslevel=level)
    return buffer.getvalue()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an NPZ file.

    Raises:
        ValueError: If the file is damaged or is not an NPZ file.
    """
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise ValueError("not a zip archive")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def content_sha256(arrays: dict[str, np.ndarray]) -> str:
    """Compute a checksum of the names, types, shapes and contents of arrays. The compression has no influence."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file atomically: write a temporary file in the same folder, sync it, and rename it.

    Args:
        path: The file. Its folder is made if it does not exist.
        content: The bytes to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
