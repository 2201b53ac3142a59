"""The rounds of a run as columns that grow: what the views are computed from, however many rounds there are."""

from __future__ import annotations

from array import array
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedstein.federation.records import RoundRecord

Floats = NDArray[np.float64]


class RoundTable:
    """Columns over rounds. A matrix has one row for each round and one column for each client; NaN if unknown."""

    def __init__(self) -> None:
        # Arrays grow as lists do, and NumPy copies them thousands of times faster.
        self._numbers = {name: array("d") for name in ("round", "bytes", "gradients", "seconds")}
        self._metrics: dict[str, array[float]] = {}
        self._picks = array("q")  # index of the round and client of each pick, by turns
        self._rows: dict[str, NDArray[np.float32]] = {}
        self.selected: list[tuple[int, ...]] = []
        self.faults: list[tuple[int, str, list[int]]] = []  # round, what, the clients that it happened to
        self.bytes_down = self.bytes_up = 0
        self.clients = 0  # one more than the greatest id that any round names

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def last_round(self) -> int:
        """The number of the last round."""
        return int(self._numbers["round"][-1])

    @property
    def usual_seconds(self) -> float | None:
        """The median time of the last rounds."""
        recent = self._numbers["seconds"][-20:]
        return median(recent) if recent else None

    def append(self, record: RoundRecord) -> None:
        """Add a round."""
        index = len(self)
        gradients = sum(record.row_gradients.values())
        values = (record.round, record.bytes_down + record.bytes_up, gradients, record.seconds)
        for column, value in zip(self._numbers.values(), values, strict=True):
            column.append(float(value))
        self.bytes_down += record.bytes_down
        self.bytes_up += record.bytes_up
        for name, score in record.metrics.items():
            if score is not None:
                column = self._metrics.setdefault(name, array("d"))
                column.extend([np.nan] * (index - len(column)))
                column.append(score)
        self.selected.append(tuple(record.selected))
        for client in record.selected:
            self._picks.extend((index, client))
        self._count(record)
        ids = record.candidate_ids
        for name, row in (("probabilities", record.probabilities), ("reports", record.reports)):
            if row is not None:
                self._put(name, index, np.array(row, np.float64), ids)

    def _count(self, record: RoundRecord) -> None:
        known = [*record.selected, *record.failed, *(record.candidate_ids or ())]
        length = len(record.probabilities or ()) if record.candidate_ids is None else 0
        everyone = record.candidates if record.candidate_ids is None else 0
        self.clients = max([self.clients, length, everyone, *(client + 1 for client in known)])
        if record.failed:
            self.faults.append((record.round, "did not finish training", list(record.failed)))
        for kind, what in (record.faults or {}).items():
            if what:
                who = what if isinstance(what, list) else list(what) if isinstance(what, dict) else []
                self.faults.append((record.round, str(kind), [int(w) for w in who if str(w).isdigit()]))
        if record.forgotten is not None:
            self.faults.append((record.round, "forgotten", [record.forgotten]))

    def _put(self, name: str, index: int, row: Floats, ids: Any) -> None:
        columns = np.arange(len(row)) if ids is None else np.asarray(ids)[: len(row)]
        row = row[: len(columns)]
        wide = max(self.clients, int(columns.max(initial=-1)) + 1)
        matrix = self._rows.get(name, np.full((64, wide), np.nan, np.float32))
        if index >= len(matrix) or wide > matrix.shape[1]:
            larger = np.full((max(2 * index, len(matrix)), max(wide, matrix.shape[1])), np.nan, np.float32)
            larger[: len(matrix), : matrix.shape[1]] = matrix
            matrix = larger
        matrix[index, columns] = row
        self._rows[name] = matrix

    def numbers(self, name: str) -> Floats:
        """The column "round", "bytes", "gradients" or "seconds"."""
        return np.array(self._numbers[name], np.float64)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that any round has a value of."""
        return tuple(self._metrics)

    def metric(self, name: str) -> Floats:
        """The values of a metric, NaN in rounds that were not evaluated."""
        found = np.full(len(self), np.nan)
        column = self._metrics.get(name, array("d"))
        found[: len(column)] = column
        return found

    def matrix(self, name: str) -> NDArray[np.float32] | None:
        """The matrix "probabilities" or "reports", rounds x clients; None if no round has any."""
        found = self._rows.get(name)
        if found is None:
            return None
        if len(found) >= len(self) and found.shape[1] >= self.clients:
            return found[: len(self)].copy()
        out = np.full((len(self), max(self.clients, found.shape[1])), np.nan, np.float32)
        shared = min(len(self), len(found))
        out[:shared, : found.shape[1]] = found[:shared]
        return out

    @property
    def picks(self) -> NDArray[np.int64]:
        """The index of the round and the client of every pick, picks x 2."""
        return np.array(self._picks, np.int64).reshape(-1, 2)

    def counts(self, clients: int) -> NDArray[np.int64]:
        """The number of rounds in which each client trained."""
        return np.bincount(self.picks[:, 1], minlength=max(clients, self.clients)).astype(np.int64)
