"""MNIST (LeCun and Cortes) with the canonical split, restricted to the digits 0 to 8 as in the paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedstein.data.dataset import Dataset, fixed_order, scaled, validate
from fedstein.data.npz import read_npz

TRAIN, TEST, PIXELS, DIGITS = 60_000, 10_000, 784, 9
EMBEDDED_TRAIN_EACH, EMBEDDED_TEST_EACH = 1_500, 500
EMBEDDED = Path(__file__).parent / "embedded" / "mnist.npz"
NAMES = tuple(str(digit) for digit in range(DIGITS))
FEATURE_NAMES = tuple(f"pixel{i}" for i in range(PIXELS))


def compact(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Store all 70,000 images as bytes: first the training set, then the test set.

    Raises:
        ValueError: If the number of images or of pixels is wrong.
    """
    if images.shape != (TRAIN + TEST, PIXELS):
        raise ValueError(f"expected {TRAIN + TEST} images of {PIXELS} pixels, got shape {images.shape}")
    return {"images": np.ascontiguousarray(images, dtype=np.uint8), "labels": labels.astype(np.uint8)}


def embedded_sample(full: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make the contents of the embedded file: equally many images of each digit, and their original row numbers."""
    labels, order = full["labels"], fixed_order(TRAIN + TEST, TRAIN + TEST)
    train, test = order[order < TRAIN], order[order >= TRAIN]
    chosen: dict[str, np.ndarray] = {}
    for part, rows, each in (("train", train, EMBEDDED_TRAIN_EACH), ("test", test, EMBEDDED_TEST_EACH)):
        picked = np.sort(np.concatenate([rows[labels[rows] == digit][:each] for digit in range(DIGITS)]))
        chosen |= {
            f"{part}_row": picked.astype(np.int32),
            f"{part}_images": full["images"][picked],
            f"{part}_labels": labels[picked],
        }
    return chosen


def load() -> Dataset:
    """Load the embedded sample: 13,500 training images and 4,500 test images."""
    arrays = read_npz(EMBEDDED)
    parts = ("train_images", "train_labels", "test_images", "test_labels")
    return from_images("mnist", *(arrays[part] for part in parts), names=NAMES)


def from_full(arrays: dict[str, np.ndarray]) -> Dataset:
    """Build the full dataset without the nines: 54,051 training images and 8,991 test images."""
    images, labels = arrays["images"], arrays["labels"]
    rows = np.flatnonzero(labels < DIGITS)
    train, test = rows[rows < TRAIN], rows[rows >= TRAIN]
    return from_images("mnist-full", images[train], labels[train], images[test], labels[test], names=NAMES)


def from_images(
    name: str,
    train_images: np.ndarray,
    train_labels: np.ndarray,
    test_images: np.ndarray,
    test_labels: np.ndarray,
    *,
    names: tuple[str, ...],
) -> Dataset:
    """Build a dataset from images of 784 bytes, which become numbers from 0 to 1.

    Args:
        name: The name of the dataset.
        train_images: Rows x 784.
        train_labels: One label for each training image, from 0.
        test_images: Rows x 784.
        test_labels: One label for each test image.
        names: What the labels are called.

    Returns:
        The dataset.
    """
    mean, scale = np.zeros(PIXELS), np.full(PIXELS, 255.0)
    shades = scaled(np.arange(256), mean[:1], scale[:1])  # a look-up table avoids a float64 copy of all images
    return validate(
        Dataset(
            name=name,
            task="classification",
            train_x=shades[train_images],
            train_y=train_labels.astype(np.int32),
            test_x=shades[test_images],
            test_y=test_labels.astype(np.int32),
            classes=len(names),
            feature_names=FEATURE_NAMES,
            mean=mean,
            scale=scale,
            label_names=names,
        )
    )
