"""Tables of the measurements: for each client and round, for each round, and summarised over seeds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein.report.summary import paired_interval
from fedstein.studies.reproduce.plan import Job
from fedstein.studies.reproduce.theory.measure import Measurement
from fedstein.studies.reproduce.theory.ranking import Delta, distribution, gain, rank_correlation
from fedstein.studies.reproduce.theory.runs import LENGTHS

INDICATORS = ("ksd", "hip", "rate")
Row = dict[str, Any]


class RoundMeasurement(NamedTuple):
    """A measurement with the scheme and the seed of its run, its round, and the probabilities of the clients."""

    scheme: str
    seed: int
    round: int
    probabilities: list[float]
    selected: list[int]
    measurement: Measurement

    @property
    def place(self) -> Row:
        """The columns that identify the measurement."""
        return {"scheme": self.scheme, "seed": self.seed, "round": self.round}

    def decreases(self) -> dict[tuple[str, str], np.ndarray]:
        """Return (local or global, length) -> the true decrease for every client."""
        both = {"local": self.measurement.local, "global": self.measurement.globally}
        return {(which, name): values[:, e] for which, values in both.items() for e, name in enumerate(LENGTHS)}


def read_measurements(job: Job, folder: Path) -> list[RoundMeasurement]:
    """Read the measurements of a run.

    Args:
        job: The job.
        folder: Its run folder.
    """
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [
        RoundMeasurement(
            job.variant,
            job.seed,
            line["round"],
            line["probabilities"],
            line["selected"],
            Measurement(**{key: np.array(values, float) for key, values in line["look"].items()}),
        )
        for line in lines
        if line["look"]
    ]


def client_rows(seen: RoundMeasurement) -> list[Row]:
    """Return the rows of ``theory.csv``."""
    decreases = seen.decreases()
    return [
        {
            **seen.place,
            "client": k,
            **{name: getattr(seen.measurement, name)[k] for name in INDICATORS},
            "probability": seen.probabilities[k],
            "selected": int(k in seen.selected),
            **{f"epsilon_{name}": seen.measurement.epsilon[k, e] for e, name in enumerate(LENGTHS)},
            **{f"{which}_{length}": values[k] for (which, length), values in decreases.items()},
        }
        for k in range(len(seen.measurement.ksd))
    ]


def round_row(seen: RoundMeasurement) -> Row:
    """Return a row of ``theory_rounds.csv``: rank correlations, Deltas (over eps), true gains, signs and clipping.

    ``gain_*`` is the gain in true global decrease of drawing from the P_k of an indicator over a uniform draw.
    ``best_*`` is the gain of always drawing the best client.
    """
    decreases, measurement = seen.decreases(), seen.measurement
    indicators = {name: getattr(measurement, name) for name in INDICATORS}
    row = {
        **seen.place,
        **{
            f"rank_{name}_{which}_{length}": rank_correlation(values, decrease)
            for name, values in indicators.items()
            for (which, length), decrease in decreases.items()
        },
    }
    for name in ("ksd", "hip"):
        delta = Delta.of(indicators[name])
        row |= {
            f"delta_{name}": delta.clipped,
            f"delta_{name}_as_written": delta.as_written,
            f"negative_{name}": delta.negative,
            f"normaliser_{name}": delta.total,
            f"normaliser_{name}_clipped": delta.kept,
        }
    for length in LENGTHS:
        decrease = decreases["global", length]
        row |= {f"gain_{name}_{length}": gain(decrease, distribution(indicators[name])) for name in INDICATORS}
        row[f"best_{length}"] = float(np.max(decrease) - np.mean(decrease))
        row[f"rising_{length}"] = int(np.sum(decrease < 0))
    return {**row, "clients": len(measurement.ksd)}


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV with six digits. Values that are not finite are empty."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([cell(value) for value in row.values()] for row in rows)
    return buffer.getvalue()


def cell(value: Any) -> str:
    """Format one value."""
    if isinstance(value, (float, np.floating)):
        return format(value, ".6g") if np.isfinite(value) else ""
    return str(value)


class Over(NamedTuple):
    """A mean over seeds, with Student's 95% interval (None with one seed)."""

    mean: float
    low: float | None
    high: float | None


def over_seeds(rows: Iterable[Row], key: str) -> Over | None:
    """Average over seeds the median over rounds.

    Args:
        rows: Rows of rounds.
        key: The column.

    Returns:
        The mean and its interval, or None if no value is finite.
    """
    each: dict[int, list[float]] = {}
    for row in rows:
        if np.isfinite(row[key]):
            each.setdefault(row["seed"], []).append(row[key])
    return Over(*paired_interval([float(np.median(values)) for values in each.values()])) if each else None


def share_of_best(rows: Sequence[Row], name: str, length: str) -> list[Row]:
    """Add a column ``share``: the gain of an indicator relative to the best possible gain."""
    return [
        {**row, "share": row[f"gain_{name}_{length}"] / row[f"best_{length}"]} for row in rows if row[f"best_{length}"]
    ]
