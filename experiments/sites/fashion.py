"""Fashion-MNIST's IDX files (Debian package ``dataset-fashion-mnist``) as files that ``fedstein run`` takes.

    python experiments/sites/fashion.py /usr/share/datasets/fashion-mnist fashion

writes fashion/train.npz and fashion/test.npz: the first 1,500 and 500 images of every class, pixels from 0 to 1.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

EACH = {"train": 1_500, "t10k": 500}


def read_idx(path: Path) -> np.ndarray:
    """One gzipped IDX file of bytes: four bytes that say how many axes, then their lengths, then the values."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\x00\x00\x08":
        raise SystemExit(f"expected an IDX file of bytes, got {path}")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def main(source: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for part, each in EACH.items():
        images, labels = (read_idx(source / f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
        rows = np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in range(10)]))
        path = out / f"{'train' if part == 'train' else 'test'}.npz"
        np.savez_compressed(path, x=(images[rows].reshape(len(rows), -1) / 255).astype(np.float32), y=labels[rows])
        print(f"{path}: {len(rows)} images")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
