"""The record of a round: one line of ``rounds.jsonl``, built by the round loop and read by everything after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from fedstein.errors import InputError
from fedstein.evaluation.metrics import NAMES, no_values

Values = Mapping[str, float | None]


@dataclass(frozen=True, eq=False)
class RoundRecord(Mapping[str, Any]):
    """The record of one round. It can be read like its line as a mapping: ``record["nll"]``, ``dict(record)``.

    Attributes:
        round: The number of the round, from 1.
        selected: The clients that trained.
        failed: The clients that were asked to train and did not.
        candidates: How many clients could be selected.
        candidate_ids: The ids of these clients; None if every client could be selected.
        probabilities: The probabilities of the draw, aligned with the candidates; None if the scheme has none.
        reports: The indicators of the candidates, with None for a missing one; None if the scheme uses none.
        faults: The faults in spite of which the round was completed, by kind; None if there were none.
        metrics: The value of each metric, the built-in ones first; None on rounds that were not evaluated.
        evaluation: The rows, the missing clients and the bytes of an evaluation by the clients; None if there was none.
        bytes_down: Array bytes from the server to clients.
        bytes_up: Array bytes from clients to the server.
        row_gradients: Rows x particles differentiated to ``train``, for the ``site`` and for the ``report``.
        seconds: How long the round took.
        speculated: The clients that trained before the draw; None if none did.
        forgotten: The client that was forgotten in this round, in a run of ``fedstein forget``; such a round has no
            faults.
        stopped: Why the run ended with this round although more were planned; None for every other round.
    """

    round: int
    selected: Sequence[int]
    bytes_down: int
    bytes_up: int
    seconds: float
    failed: Sequence[int] = ()
    candidates: int = 0
    candidate_ids: Sequence[int] | None = None
    probabilities: Sequence[float | None] | None = None
    reports: Sequence[float | None] | None = None
    faults: Mapping[str, Any] | None = None
    metrics: Values = field(default_factory=no_values)
    evaluation: Mapping[str, Any] | None = None
    row_gradients: Mapping[str, int] = field(default_factory=dict)
    speculated: Sequence[int] | None = None
    forgotten: int | None = None
    stopped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The line of ``rounds.jsonl``. Some keys, such as ``stopped``, are left out if they are None."""
        return {
            "round": self.round,
            "selected": list(self.selected),
            "failed": list(self.failed),
            "candidates": self.candidates,
            "candidate_ids": _listed(self.candidate_ids),
            "probabilities": _listed(self.probabilities),
            "reports": _listed(self.reports),
            **({"faults": self.faults} if self.forgotten is None else {}),
            **self.metrics,
            **({"evaluation": self.evaluation} if self.evaluation is not None else {}),
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "row_gradients": dict(self.row_gradients),
            "seconds": self.seconds,
            **({"speculated": list(self.speculated)} if self.speculated is not None else {}),
            **({"forgotten": self.forgotten} if self.forgotten is not None else {}),
            **({"stopped": self.stopped} if self.stopped is not None else {}),
        }

    @classmethod
    def from_dict(cls, line: Any) -> RoundRecord:
        """Read a record from a line of ``rounds.jsonl``. Lines of earlier versions, which lack some keys, are read too.

        Args:
            line: The parsed line. Keys that are not fields of a record are metrics.

        Returns:
            The record. Built-in metrics that the line lacks are None.

        Raises:
            InputError: The line is not a record; the message says which key is missing or wrong.
        """
        if not isinstance(line, Mapping):
            raise InputError(f"expected the record of a round, got {type(line).__name__}")
        for key in REQUIRED:
            if key not in line:
                raise InputError(f"expected the key {key!r} in the record of a round, got none")
        found = {key: value for key, value in line.items() if key in CHECKS}
        values = {**dict.fromkeys(NAMES), **{key: value for key, value in line.items() if key not in CHECKS}}
        for key, value in found.items():
            expected, sound = CHECKS[key]
            if not sound(value):
                raise InputError(f"expected {key!r} to be {expected}, got {value!r:.60}")
        for key, value in values.items():
            if not (value is None or _number(value)):
                raise InputError(f"expected the metric {key!r} to be a number or null, got {value!r:.60}")
        if found.get("row_gradients", {}) is None:
            del found["row_gradients"]
        return cls(**found, metrics=values)

    def __getitem__(self, key: str) -> Any:
        return self._line[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._line)

    def __len__(self) -> int:
        return len(self._line)

    @cached_property
    def _line(self) -> dict[str, Any]:
        return self.to_dict()


def metric_names(records: Sequence[RoundRecord]) -> tuple[str, ...]:
    """The metrics that any of the records has, the built-in ones first."""
    return tuple(dict.fromkeys([*NAMES, *(name for record in records for name in record.metrics)]))


def _listed(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_count, value))


def _numbers(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(each is None or _number(each) for each in value))


def _object(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


_IDS, _NUMBERS, _OBJECT, _COUNT = "a list of client ids", "null or a list of numbers", "null or an object", "a count"
CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "round": ("a number from 1 on", lambda value: type(value) is int and value >= 1),
    "selected": (_IDS, _ids),
    "failed": (_IDS, _ids),
    "candidates": (_COUNT, _count),
    "candidate_ids": (f"null or {_IDS}", lambda value: value is None or _ids(value)),
    "probabilities": (_NUMBERS, _numbers),
    "reports": (_NUMBERS, _numbers),
    "faults": (_OBJECT, _object),
    "evaluation": (_OBJECT, _object),
    "bytes_down": (_COUNT, _count),
    "bytes_up": (_COUNT, _count),
    "row_gradients": ("an object of counts", lambda value: _object(value) and all(map(_count, (value or {}).values()))),
    "seconds": ("a number", _number),
    "speculated": (f"null or {_IDS}", lambda value: value is None or _ids(value)),
    "forgotten": ("null or a client id", lambda value: value is None or _count(value)),
    "stopped": ("null or a sentence", lambda value: value is None or isinstance(value, str)),
}
REQUIRED = ("round", "selected", "bytes_down", "bytes_up", "seconds")
assert CHECKS.keys() == {each.name for each in fields(RoundRecord)} - {"metrics"}
