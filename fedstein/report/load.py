"""Reading a run folder: the configuration, the finished rounds and, if the run is finished, its summary."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedstein.errors import InputError
from fedstein.evaluation.metrics import NAMES, Metrics, evaluated, tail
from fedstein.federation.records import RoundRecord, metric_names

# The distances in reference.json, for the particles of a run and for as many draws of the reference.
MEASURES = {
    "offset_median": ("mean_offset", "median"),
    "offset_max": ("mean_offset", "max"),
    "offset_log_xi": ("mean_offset", "log_xi"),
    "sd_ratio_min": ("sd_ratio", "min"),
    "sd_ratio_median": ("sd_ratio", "median"),
    "sd_ratio_max": ("sd_ratio", "max"),
    "sd_ratio_log_xi": ("sd_ratio", "log_xi"),
    "ksd": ("ksd",),
}


@dataclass(frozen=True)
class Run:
    """One run folder.

    `summary`, `reliability` and `evaluation` are None until the run is finished. `reference` is the content of
    ``reference.json``, or None. `evaluation` has the scores of each client, or is None if the server evaluated.
    """

    path: Path
    config: dict[str, Any]
    rounds: list[RoundRecord]
    summary: dict[str, Any] | None
    reliability: list[dict[str, Any]] | None
    reference: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.config.get("seed", 0))

    @property
    def status(self) -> str:
        """ "finished", or the last round so far."""
        if self.summary is not None:
            return "finished"
        return f"round {self.rounds[-1]['round']} of {self.config.get('rounds', '?')}"

    @cached_property
    def client_names(self) -> dict[int, str]:
        """The names of the clients by id, from ``clients.json``; empty if they have none but their numbers."""
        try:
            entries = json.loads((self.path / "clients.json").read_text("utf-8"))
            names = {int(entry["id"]): str(entry["name"]) for entry in entries}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return {} if all(name == f"client-{client}" for client, name in names.items()) else names

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics, the built-in ones first."""
        return metric_names(self.rounds)

    @cached_property
    def final(self) -> Metrics:
        """The metrics of the last round, or of the last evaluated round if the run is not finished."""
        source = self.summary["final"] if self.summary is not None else self._until_evaluated()[-1]
        return {metric: source.get(metric) for metric in self.metrics}

    @cached_property
    def tail(self) -> dict[str, Metrics]:
        """{metric: {mean, sd}} over the last quarter of the rounds, or of the rounds so far."""
        got = self.summary["tail"] if self.summary is not None else tail(self._until_evaluated(), self.metrics)
        empty: Metrics = {"mean": None, "sd": None}
        return {metric: {**empty, **(got.get(metric) or {})} for metric in self.metrics}

    @cached_property
    def selected_counts(self) -> list[int]:
        """The number of rounds in which each client trained, by client id."""
        if self.summary is not None:
            return list(self.summary["selected_counts"])
        chosen = [client for line in self.rounds for client in line["selected"]]
        known = self.config.get("partition", {}).get("clients", 0)
        counts = [0] * max(known, max(chosen, default=-1) + 1)
        for client in chosen:
            counts[client] += 1
        return counts

    def distance(self, measure: str, of: str = "particles") -> float | None:
        """Return one distance from NUTS.

        Args:
            measure: A key of MEASURES.
            of: `particles`, or `draws` for as many draws of NUTS itself.

        Returns:
            The distance, or None if there is none.
        """
        value: Any = (self.reference or {}).get(of)
        for key in MEASURES[measure]:
            value = (value or {}).get(key)
        return value

    def per_round(self, key: str) -> float | None:
        """Return the mean of a number over the rounds that have it, or None.

        Args:
            key: The name of the number in ``rounds.jsonl``.

        Returns:
            The mean, or None if no round has it.
        """
        values = [line[key] for line in self.rounds if line.get(key) is not None]
        return sum(values) / len(values) if values else None

    def gradients_per_round(self, part: str) -> float | None:
        """Return the mean number of rows x particles differentiated in a round for `train`, `site` or `report`.

        Args:
            part: ``"train"``, ``"site"`` or ``"report"``.

        Returns:
            The mean, or None if the run does not say.
        """
        values = [(line.get("row_gradients") or {}).get(part) for line in self.rounds]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    def _until_evaluated(self) -> Sequence[RoundRecord]:
        known = [i for i, line in enumerate(self.rounds) if evaluated(line, self.metrics)]
        return self.rounds[: known[-1] + 1] if known else self.rounds


def load_run(path: str | Path, problems: list[str] | None = None) -> Run:
    """Read a run folder. An incomplete last line of rounds.jsonl, left by a killed run, is ignored.

    Args:
        path: The run folder.
        problems: A list for what is damaged, one sentence each; the rest of the run is read all the same. None raises
            an error for the first damaged file instead.

    Returns:
        The run. A damaged summary is left out, so that the numbers are those of the rounds.

    Raises:
        InputError: If the folder holds no run, no round can be read, or, without ``problems``, a file is damaged.
    """
    folder = Path(path)
    for name in ("config.toml", "rounds.jsonl"):
        if not (folder / name).is_file():
            raise InputError(_not_a_run(folder, name))
    config: dict[str, Any] = {}
    summary = reference = evaluation = None
    with _tolerated(problems):
        config = _read_config(folder / "config.toml")
    rounds = _read_rounds(folder / "rounds.jsonl", problems)
    with _tolerated(problems):
        summary = _read_summary(folder / "summary.json", last_round=rounds[-1].round)
    with _tolerated(problems):
        reference = _read_reference(folder)
    with _tolerated(problems):
        evaluation = _read_evaluation(folder / "clients-evaluation.json") if summary else None
    reliability = summary.get("reliability") if summary else None
    return Run(folder, config, rounds, summary, reliability or None, reference, evaluation)


@contextmanager
def _tolerated(problems: list[str] | None) -> Iterator[None]:
    """Note an error of a damaged file in the list, if there is one."""
    try:
        yield
    except InputError as error:
        if problems is None:
            raise
        problems.append(str(error))


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"expected valid TOML in {file}, got: {error}; restore the file or run again") from error
    if type(config.get("seed", 0)) is not int:
        raise InputError(f"expected an integer seed in {file}, got {config['seed']!r}; restore the file")
    return config


def _not_a_run(folder: Path, missing: str) -> str:
    if not folder.exists():
        return f"expected a run folder, got {folder}, which does not exist; check the path"
    if not folder.is_dir():
        return f"expected a run folder, got the file {folder}; give the folder that `fedstein run` wrote"
    inside = sorted(child.parent.name for child in folder.glob("*/rounds.jsonl"))
    remedy = f"did you mean {folder}/*, such as {folder / inside[0]}?" if inside else "check the path"
    return f"expected a run folder, got {folder}, which has no {missing}; {remedy}"


def _read_rounds(file: Path, problems: list[str] | None) -> list[RoundRecord]:
    # After a power cut, some file systems leave NUL bytes at the end of a file.
    texts = file.read_bytes().decode("utf-8", errors="replace").rstrip("\0 \r\n").split("\n")
    rounds: list[RoundRecord] = []
    for number, text in enumerate(texts, start=1):
        try:
            record = RoundRecord.from_dict(json.loads(text, parse_constant=lambda _: None))
            if rounds and record.round <= rounds[-1].round:
                raise InputError(f"expected a round after {rounds[-1].round}, got {record.round}")
        except (json.JSONDecodeError, InputError) as error:
            if number == len(texts) and isinstance(error, json.JSONDecodeError):
                break
            with _tolerated(problems):
                raise InputError(
                    f"expected one finished round a line in {file}, got a broken line {number}: {text[:40]!r} "
                    f"({error}); delete it and what follows, then use `fedstein resume`"
                ) from None
            continue
        rounds.append(record)
    if not rounds:
        raise InputError(
            f"expected at least one finished round, got none in {file}; let the run get further or `fedstein resume` it"
        )
    return rounds


def _read_reference(folder: Path) -> dict[str, Any] | None:
    file = folder / "reference.json"
    if not file.is_file():
        return None
    try:
        reference = json.loads(file.read_text("utf-8"), parse_constant=lambda _: None)
        ours, nuts = reference["particles"], reference["nuts"]
        lists = [ours[part]["each"] for part in ("mean_offset", "sd_ratio")]
        found = {name: ours[keys[0]][keys[1]] if keys[1:] else ours[keys[0]] for name, keys in MEASURES.items()}
        sound = all(_number(value) or (value is None and name.endswith("log_xi")) for name, value in found.items())
        sound = sound and all(isinstance(each, list) and len(each) > 1 and all(map(_number, each)) for each in lists)
        sound = sound and type(ours["count"]) is int and type(reference["trusted"]) is bool
        sound = sound and all(_number(nuts[key]) for key in ("divergences", "max_rhat", "min_ess"))
        made_for = reference["posterior_sha256"]
    except (ValueError, KeyError, TypeError, AttributeError):
        sound, made_for = False, None
    remedy = f"give fedstein reference {folder} again, or delete the file"
    if not sound:
        raise InputError(f"expected the distances from NUTS in {file}, got a damaged file; {remedy}")
    posterior = folder / "posterior.safetensors"
    if posterior.is_file() and hashlib.sha256(posterior.read_bytes()).hexdigest() != made_for:
        raise InputError(
            f"expected the distances of the particles in {posterior}, got those of other particles; {remedy}"
        )
    return reference


def _read_evaluation(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(file.read_text("utf-8"), parse_constant=lambda _: None)
        together, entries = document["together"], document["clients"]
        sound = all(_number(entry[key]) for entry in [together, *entries] for key in ("rows", *NAMES))
        sound = sound and all(type(entry["id"]) is int and isinstance(entry["name"], str) for entry in entries)
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise InputError(f"expected each client's evaluation in {file}, got a damaged file; restore or delete it")
    return document


def _number(value: Any) -> bool:
    return value is None or type(value) in (int, float)


def _read_summary(file: Path, last_round: int) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        summary = json.loads(file.read_text("utf-8"), parse_constant=lambda _: None)
        missing = [key for key in ("rounds", "final", "tail", "selected_counts") if key not in summary]
        if any(not isinstance(summary[key], dict) for key in ("final", "tail") if key in summary):
            raise TypeError("'final' and 'tail' must be objects")
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError) as error:
        raise InputError(
            f"expected a JSON object in {file}, got: {error}; delete it and use `fedstein resume`"
        ) from error
    if missing:
        raise InputError(f"expected {missing[0]!r} in {file}, got none; delete the file and use `fedstein resume`")
    # A summary with fewer rounds than rounds.jsonl is from before the run was extended.
    done = summary.get("status", "finished") == "finished" and summary["rounds"] == last_round
    return summary if done else None
