"""From the looks of the runs to rows: one a client and round, one a round, and what is said of them over seeds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedstein.report.summary import paired_interval
from fedstein.reproduce.plan import Job
from fedstein.reproduce.theory.measure import Look
from fedstein.reproduce.theory.ranking import Delta, distribution, gain, rank_correlation
from fedstein.reproduce.theory.run import LENGTHS

INDICATORS = ("ksd", "hip", "rate")
Row = dict[str, Any]


class Seen(NamedTuple):
    """A look with its place: the scheme and the seed of the run, the round it came before, who could be drawn."""

    scheme: str
    seed: int
    round: int
    probabilities: list[float]
    selected: list[int]
    look: Look

    @property
    def place(self) -> Row:
        return {"scheme": self.scheme, "seed": self.seed, "round": self.round}

    def decreases(self) -> dict[tuple[str, str], np.ndarray]:
        """(local or global, length) -> the true decrease for every client."""
        both = {"local": self.look.local, "global": self.look.globally}
        return {(which, name): values[:, e] for which, values in both.items() for e, name in enumerate(LENGTHS)}


def read_looks(job: Job, folder: Path) -> list[Seen]:
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [
        Seen(
            job.arm,
            job.seed,
            line["round"],
            line["probabilities"],
            line["selected"],
            Look(**{key: np.array(values, float) for key, values in line["look"].items()}),
        )
        for line in lines
        if line["look"]
    ]


def client_rows(seen: Seen) -> list[Row]:
    """``theory.csv``."""
    decreases = seen.decreases()
    return [
        {
            **seen.place,
            "client": k,
            **{name: getattr(seen.look, name)[k] for name in INDICATORS},
            "probability": seen.probabilities[k],
            "selected": int(k in seen.selected),
            **{f"epsilon_{name}": seen.look.epsilon[k, e] for e, name in enumerate(LENGTHS)},
            **{f"{which}_{length}": values[k] for (which, length), values in decreases.items()},
        }
        for k in range(len(seen.look.ksd))
    ]


def round_row(seen: Seen) -> Row:
    """``theory_rounds.csv``: rank correlations, the Deltas (divided by eps), the true gains, signs and clipping.

    ``gain_*`` is what drawing by an indicator's P_k brings over a uniform draw in true global decrease, ``best_*`` what
    always drawing the best client would bring.
    """
    decreases, look = seen.decreases(), seen.look
    indicators = {name: getattr(look, name) for name in INDICATORS}
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
    return {**row, "clients": len(look.ksd)}


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Six digits; what is no number stays empty."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([cell(value) for value in row.values()] for row in rows)
    return buffer.getvalue()


def cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return format(value, ".6g") if np.isfinite(value) else ""
    return str(value)


class Over(NamedTuple):
    """The mean over seeds of a number of each run, with Student's 95% interval (none with one seed)."""

    mean: float
    low: float | None
    high: float | None


def over_seeds(rows: Iterable[Row], key: str) -> Over | None:
    """Of the medians over rounds, one a seed."""
    each: dict[int, list[float]] = {}
    for row in rows:
        if np.isfinite(row[key]):
            each.setdefault(row["seed"], []).append(row[key])
    return Over(*paired_interval([float(np.median(values)) for values in each.values()])) if each else None


def share_of_best(rows: Sequence[Row], name: str, length: str) -> list[Row]:
    """Rows with the gain of an indicator as a share of the best possible one."""
    return [
        {**row, "share": row[f"gain_{name}_{length}"] / row[f"best_{length}"]} for row in rows if row[f"best_{length}"]
    ]
