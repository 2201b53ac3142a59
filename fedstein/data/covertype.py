"""Forest cover type (Blackard and Dean, UCI): lodgepole pine against all other types, from 54 map features.

One fixed permutation orders the 581,012 rows. The first 20,000 rows are the embedded test rows and the first 100,000
are the test rows of the full dataset. The 40,000 rows after those are the embedded training rows, and all rows after
the first 100,000 are the training rows of the full dataset.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedstein.data.dataset import Dataset, fixed_order, scaled, standardisation, validate
from fedstein.data.npz import read_npz

ROWS, NUMERIC, WILDERNESS, SOIL = 581_012, 10, 4, 40
EMBEDDED_TEST, EMBEDDED_TRAIN, FULL_TEST = 20_000, 40_000, 100_000
EMBEDDED = Path(__file__).parent / "embedded" / "covertype.npz"
FEATURE_NAMES = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
    *(f"Wilderness_Area{i}" for i in range(1, WILDERNESS + 1)),
    *(f"Soil_Type{i}" for i in range(1, SOIL + 1)),
)
LODGEPOLE_PINE = 2
PERMUTATION_TAG = 581_012


def compact(features: np.ndarray, cover: np.ndarray) -> dict[str, np.ndarray]:
    """Store the rows as small integers. The numeric columns are stored one after another (10 x n).

    Args:
        features: n x 54, the original columns.
        cover: The cover type of each row, 1 to 7.

    Returns:
        The arrays ``numeric``, ``wilderness``, ``soil`` and ``cover``.

    Raises:
        ValueError: If a row does not have exactly one wilderness area and one soil type.
    """
    areas, soils = features[:, NUMERIC : NUMERIC + WILDERNESS], features[:, NUMERIC + WILDERNESS :]
    if features.shape[1] != len(FEATURE_NAMES) or np.any(areas.sum(axis=1) != 1) or np.any(soils.sum(axis=1) != 1):
        raise ValueError("expected 54 columns with one wilderness area and one soil type in each row")
    return {
        "numeric": np.ascontiguousarray(features[:, :NUMERIC].T, dtype=np.int16),
        "wilderness": areas.argmax(axis=1).astype(np.uint8),
        "soil": soils.argmax(axis=1).astype(np.uint8),
        "cover": cover.astype(np.uint8),
    }


def permutation() -> np.ndarray:
    """Return the order of the original rows that every split follows."""
    return fixed_order(ROWS, PERMUTATION_TAG)


def embedded_rows(order: np.ndarray) -> np.ndarray:
    """Return the original row numbers of the embedded sample: first the test rows, then the training rows."""
    return np.concatenate([order[:EMBEDDED_TEST], order[FULL_TEST : FULL_TEST + EMBEDDED_TRAIN]])


def pick(arrays: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Select rows of compact arrays."""
    return {name: array[:, rows] if name == "numeric" else array[rows] for name, array in arrays.items()}


def embedded_sample(full: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make the contents of the embedded file from the full compact arrays."""
    rows = embedded_rows(permutation())
    return pick(full, rows) | {"row": rows.astype(np.int32)}


def load() -> Dataset:
    """Load the embedded sample: 20,000 test rows and 40,000 training rows."""
    return _dataset("covertype", read_npz(EMBEDDED), EMBEDDED_TEST)


def from_full(arrays: dict[str, np.ndarray]) -> Dataset:
    """Build the full dataset from its compact arrays: 100,000 test rows and 481,012 training rows."""
    return _dataset("covertype-full", pick(arrays, permutation()), FULL_TEST)


def _dataset(name: str, arrays: dict[str, np.ndarray], tests: int) -> Dataset:
    numeric = arrays["numeric"].T.astype(np.float64)
    mean, scale = np.zeros(len(FEATURE_NAMES)), np.ones(len(FEATURE_NAMES))
    mean[:NUMERIC], scale[:NUMERIC] = standardisation(numeric[tests:])
    x = np.zeros((len(numeric), len(FEATURE_NAMES)), np.float32)
    x[:, :NUMERIC] = scaled(numeric, mean[:NUMERIC], scale[:NUMERIC])
    every = np.arange(len(x))
    x[every, NUMERIC + arrays["wilderness"].astype(np.int64)] = 1
    x[every, NUMERIC + WILDERNESS + arrays["soil"].astype(np.int64)] = 1
    y = (arrays["cover"] == LODGEPOLE_PINE).astype(np.int32)
    return validate(
        Dataset(
            name=name,
            task="classification",
            train_x=x[tests:],
            train_y=y[tests:],
            test_x=x[:tests],
            test_y=y[:tests],
            classes=2,
            feature_names=FEATURE_NAMES,
            mean=mean,
            scale=scale,
            label_names=("other", "lodgepole pine"),
        )
    )
