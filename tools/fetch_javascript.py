"""Fetch the two JavaScript libraries that are kept in the repository, from npm, and check what came.

python tools/fetch_javascript.py    needs npm; it replaces the files and prints their checksums
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# package, version: member of the package -> file of the repository, and its SHA-256
LIBRARIES = {
    ("echarts", "6.1.0"): {
        "dist/echarts.min.js": (
            "fedstein/report/static/echarts.min.js",
            "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0",
        )
    },
    ("axe-core", "4.14.0"): {
        "axe.min.js": ("tests/page/axe/axe.min.js", "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878")
    },
}


def fetch(package: str, version: str, folder: Path) -> tarfile.TarFile:
    """Download one version of a package."""
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True, capture_output=True, text=True
    )
    return tarfile.open(folder / done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Replace the files."""
    with tempfile.TemporaryDirectory() as folder:
        for (package, version), members in LIBRARIES.items():
            with fetch(package, version, Path(folder)) as archive:
                for member, (place, expected) in members.items():
                    found = archive.extractfile(f"package/{member}")
                    assert found is not None
                    content = found.read()
                    checksum = hashlib.sha256(content).hexdigest()
                    if checksum != expected:
                        raise SystemExit(f"{package} {version}: expected {expected}, got {checksum}")
                    (ROOT / place).write_bytes(content)
                    print(place, checksum)


if __name__ == "__main__":
    main()
