"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): ten kinds of clothes, 28 x 28, with the canonical split."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import numpy as np

from fedstein.data import mnist
from fedstein.data.dataset import Dataset

LABELS = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
FILES = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def read_idx(content: bytes) -> np.ndarray:
    """Read a gzipped IDX file of bytes: how many axes there are, their lengths, and the values.

    Args:
        content: The file.

    Returns:
        The array.

    Raises:
        ValueError: It is not such a file.
    """
    try:
        plain = gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise ValueError(f"expected a gzipped IDX file, got something else ({error})") from None
    if plain[:3] != b"\x00\x00\x08":
        raise ValueError("expected an IDX file of bytes, got another kind of file")
    axes = plain[3]
    shape = np.frombuffer(plain, ">u4", axes, 4)
    return np.frombuffer(plain, np.uint8, offset=4 + 4 * axes).reshape(shape)


def from_idx(read: Callable[[str], bytes]) -> dict[str, np.ndarray]:
    """Build the compact arrays from the four IDX files.

    Args:
        read: The name of a file, one of ``FILES`` -> its content.

    Returns:
        ``images`` and ``labels`` of all 70,000 images, first the training set and then the test set.

    Raises:
        ValueError: A file is not what is expected.
    """
    train, train_labels, test, test_labels = (read_idx(read(name)) for name in FILES)
    images = np.concatenate([train.reshape(len(train), -1), test.reshape(len(test), -1)])
    return mnist.compact(images, np.concatenate([train_labels, test_labels]))


def from_full(arrays: dict[str, np.ndarray]) -> Dataset:
    """Build the dataset: 60,000 training images and 10,000 test images, pixels from 0 to 1."""
    images, labels = arrays["images"], arrays["labels"]
    train, test = slice(0, mnist.TRAIN), slice(mnist.TRAIN, None)
    return mnist.from_images("fashion", images[train], labels[train], images[test], labels[test], names=LABELS)
