"""Downloading a Debian package with apt, without installing it, and reading files from it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence

MAGIC = b"!<arch>\n"
HEADER = 60  # bytes before each member: its name in the first 16, its size in 48 to 58


def package_files(content: bytes, paths: Sequence[str]) -> dict[str, bytes]:
    """Read files from a Debian package: an ``ar`` archive, of which the member ``data.tar.*`` holds the files.

    Args:
        content: The package.
        paths: Where the files would be installed, without the first slash.

    Returns:
        The content of each file, by its path.

    Raises:
        ValueError: It is not a Debian package, or a file is not in it.
    """
    if not content.startswith(MAGIC):
        raise ValueError("expected a Debian package, got another kind of file")
    place = len(MAGIC)
    while place + HEADER <= len(content):
        header = content[place : place + HEADER]
        size = int(header[48:58])
        if header[:16].startswith(b"data.tar"):
            return _members(content[place + HEADER : place + HEADER + size], paths)
        place += HEADER + size + size % 2
    raise ValueError("expected a Debian package with data.tar, got none")


def _members(content: bytes, paths: Sequence[str]) -> dict[str, bytes]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            if path in paths and (stream := archive.extractfile(member)) is not None:
                found[path] = stream.read()
    if lacking := [path for path in paths if path not in found]:
        raise ValueError(f"expected {lacking[0]} in the package, got none")
    return found
