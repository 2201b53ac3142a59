"""Comparisons of settings: every combination of the compared values, over the same seeds, with all else stated.

A value that is compared can change other settings, because their defaults depend on it: HIP renews curvature sites,
round robin cannot. ``plan_comparison`` finds these settings. With ``fair`` it sets them alike for all variants; without
it they are listed beside the result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.data import Dataset
from fedstein.errors import InputError
from fedstein.report import ReportResult, write_report
from fedstein.report.groups import flatten, show
from fedstein.runs.config import Config
from fedstein.runs.config_sources import Layer, layer_of, parse_setting
from fedstein.runs.federate import load_dataset
from fedstein.runs.parallel_jobs import run_jobs
from fedstein.runs.reading import resolve_layers
from fedstein.runs.series import Series, SeriesRun, check_place, keep_threads, write_series

NOT_COMPARED = ("seed", "engine.threads")  # what runs may differ in without being different variants
Resolve = Callable[[Sequence[Layer]], Config]


class Over(NamedTuple):
    """One compared key and its values."""

    key: str
    values: tuple[Any, ...]


class Variant(NamedTuple):
    """One combination of the compared values, and the config that follows from it."""

    label: str
    values: dict[str, Any]
    config: Config


class Comparison(NamedTuple):
    """The variants, and what is equal or different in them besides the compared keys.

    Attributes:
        over: The compared keys.
        variants: The variants; the others are compared with the first.
        held: With ``fair``: the settings that would have differed, and the value that all variants have now.
        differing: The settings that differ all the same: key -> label -> value.
        partial: The settings that only some variants have, because they belong to a kind: key -> labels.
        fair: Whether settings were held equal.
    """

    over: tuple[Over, ...]
    variants: tuple[Variant, ...]
    held: dict[str, Any]
    differing: dict[str, dict[str, Any]]
    partial: dict[str, list[str]]
    fair: bool

    def notes(self) -> tuple[str, ...]:
        """Return the notes above the table."""
        compared = " and ".join(over.key for over in self.over)
        notes = []
        if self.held:
            listed = ", ".join(f"{key} = {show(value)}" for key, value in self.held.items())
            notes.append(f"Held equal besides {compared} (--fair): {listed}.")
        elif self.fair:
            notes.append(f"Held equal besides {compared} (--fair): everything; nothing had to be changed for it.")
        if self.differing:
            listed = "; ".join(f"{key} ({by_value(values)})" for key, values in self.differing.items())
            notes.append(f"Besides {compared} these settings differ: {listed}. --fair holds them equal.")
        elif not self.fair:
            notes.append(f"Nothing but {compared} differs.")
        groups: dict[tuple[str, ...], list[str]] = {}
        for key, labels in self.partial.items():
            groups.setdefault(tuple(labels), []).append(key)
        for having, owned in groups.items():
            notes.append(f"Only {' / '.join(having)} has {', '.join(owned)}.")
        return tuple(notes)

    def runs(self, seeds: int, threads: int = 0) -> list[SeriesRun]:
        """The runs of all variants, by seed, so that an interrupted comparison has whole pairs.

        Args:
            seeds: The number of seeds, from that of the config on.
            threads: The threads of each run that sets none; 0 to leave it open.
        """
        return [
            SeriesRun.of(
                f"{slug(variant.label)}-seed{variant.config.seed + index}",
                variant.config.model_copy(update={"seed": variant.config.seed + index}),
                variant.config.engine.threads if "engine.threads" in variant.values else threads,
            )
            for index in range(seeds)
            for variant in self.variants
        ]

    def place(self) -> Path:
        """The folder for this comparison, the same whenever it is asked for: ``runs/compare-<keys>-<digest>``."""
        keys = "-".join(over.key.removesuffix(".kind").rpartition(".")[2] for over in self.over)
        texts = []
        for variant in self.variants:
            whole = variant.config.to_dict()
            whole["engine"].pop("threads")
            texts.append(json.dumps(whole, sort_keys=True, default=str))
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
        return Path("runs") / f"compare-{keys}-{digest}"


def parse_over(text: str) -> Over:
    """Read one ``--over``.

    Args:
        text: ``section.key=A,B,...``; each value is read as for ``--set``. Commas within brackets or quotes do not
            separate values.

    Returns:
        The key and its values.

    Raises:
        InputError: The text has another form, or there are fewer than two different values.
    """
    name, equals, rest = text.partition("=")
    parts = [part.strip() for part in split_values(rest)]
    if not equals or not name.strip() or not all(parts):
        raise InputError(
            f"--over expects section.key=VALUE,VALUE,..., got {text!r}; for example "
            "--over selection.kind=round_robin,ksd,hip"
        )
    key = name.strip()
    if key == "seed":
        raise InputError("--over seed: every variant runs over the same seeds; say how many with --seeds")
    values = tuple(parse_setting(f"{key}={part}")[1] for part in parts)
    if len({json.dumps(value, default=str) for value in values}) < max(2, len(values)):
        raise InputError(f"--over {key}: expected at least two different values, each once, got {rest!r}")
    return Over(key, values)


def split_values(text: str) -> list[str]:
    """Split at the commas that are not within brackets or quotes."""
    return list(re.findall(r"(?:\[[^\]]*\]|\"[^\"]*\"|'[^']*'|[^,\[\"'])+|(?<=,)(?=,|$)|^$", text))


def plan_comparison(layers: Sequence[Layer], over: Sequence[Over], fair: bool) -> Comparison:
    """Resolve the config of every variant, and find out in what else they differ.

    Args:
        layers: The settings that all variants share.
        over: The compared keys and their values. Several give every combination.
        fair: Whether all other settings are set alike. A setting gets the value of the first variant with which every
            variant is valid.

    Returns:
        The comparison.

    Raises:
        InputError: A setting is wrong, is compared and set at once, or cannot be set alike.
    """
    keys = [each.key for each in over]
    if len(set(keys)) < len(keys):
        raise InputError(f"--over: expected every key once, got {', '.join(keys)}; write its values in one --over")
    for key in keys:
        if layer_of([layer for layer in layers if layer[0] == "the command line"], key) is not None:
            raise InputError(f"{key} is compared by --over and set by --set; leave one of them out")
    resolve = resolver()
    combinations = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(o.values for o in over))]
    labels = unique([label_of(values) for values in combinations])

    def configs_with(held: Sequence[tuple[str, Any, frozenset[int]]]) -> list[Config]:
        return [
            resolve([*layers, *fair_layer(held, index), ("--over", nest(values))])
            for index, values in enumerate(combinations)
        ]

    held: list[tuple[str, Any, frozenset[int]]] = []
    configs = configs_with(held)
    flat = [flat_config(config) for config in configs]
    while fair and (waiting := differing_values(flat, keys)):
        key = waiting[0]
        having = frozenset(index for index, each in enumerate(flat) if key in each)
        values = {json.dumps(flat[index][key], default=str): flat[index][key] for index in sorted(having)}
        reason = ""
        for value in values.values():
            try:
                configs = configs_with([*held, (key, value, having)])
            except InputError as error:
                reason = str(error)
                continue
            held.append((key, value, having))
            break
        else:
            raise InputError(
                f"--fair cannot hold {key} equal: no variant's value ({', '.join(map(show, values.values()))}) suits "
                f"all of them ({reason}); leave --fair out, and the table says what differs"
            )
        flat = [flat_config(config) for config in configs]
    _refuse_same(flat, labels)
    differing = {
        key: {label: each[key] for label, each in zip(labels, flat, strict=True) if key in each}
        for key in differing_values(flat, keys)
    }
    names = dict.fromkeys(key for each in flat for key in each)
    partial = {
        key: [label for label, each in zip(labels, flat, strict=True) if key in each]
        for key in names
        if key not in keys and any(key not in each for each in flat)
    }
    variants = tuple(Variant(*parts) for parts in zip(labels, combinations, configs, strict=True))
    return Comparison(tuple(over), variants, {key: value for key, value, _ in held}, differing, partial, fair)


def compare(
    over: Mapping[str, Sequence[Any]],
    *,
    settings: Mapping[str, Any] | None = None,
    seeds: int = 5,
    fair: bool = False,
    jobs: int = 1,
    out: str | Path | None = None,
    on_progress: Callable[[float, str], None] = lambda share, doing: None,
) -> ReportResult:
    """Run a comparison and write its report. The same call again continues it; finished runs are not repeated.

    Args:
        over: The compared keys and their values: ``{"selection.kind": ["ksd", "hip"]}``.
        settings: Settings that all variants share, nested like a config file.
        seeds: The number of seeds of each variant.
        fair: Whether all other settings are set alike, also those whose defaults depend on a compared key.
        jobs: The number of runs at once, each a process of its own.
        out: The folder; by default one below ``runs`` whose name follows from the comparison.
        on_progress: Is called with the share of the work that is done and a description of the current work.

    Returns:
        The report: its files, its rows, and the notes on what was held equal or differs.

    Raises:
        InputError: A setting or the folder is wrong.
        FedsteinError: A run failed.
    """
    layers: list[Layer] = [("settings", settings)] if settings else []
    comparison = plan_comparison(layers, [Over(key, tuple(values)) for key, values in over.items()], fair)
    return run_comparison(comparison, seeds, jobs, Path(out) if out else comparison.place(), on_progress)


def run_comparison(
    comparison: Comparison, seeds: int, workers: int, place: Path, on_progress: Callable[[float, str], None]
) -> ReportResult:
    """Run what is not finished yet, and write the report to ``place/report``."""
    from fedstein.machine import cores

    runs = comparison.runs(seeds)
    check_place(place, runs)
    series = Series(tuple(keep_threads(place, runs, max(1, cores() // workers))), comparison.notes())
    write_series(place, series)
    folders = run_jobs(series.runs, place, workers, on_progress)
    ordered = sorted(folders, key=lambda run: order_of(run, comparison))
    return write_report([folders[run] for run in ordered], place / "report", series.notes)


def order_of(run: SeriesRun, comparison: Comparison) -> int:
    """The number of the variant that a run belongs to."""
    return next(i for i, v in enumerate(comparison.variants) if run.name.startswith(f"{slug(v.label)}-seed"))


def resolver() -> Resolve:
    """A function that resolves layers and loads each dataset once."""

    @cache
    def loaded(text: str) -> Dataset:
        return load_dataset(json.loads(text))

    def load(raw: Mapping[str, Any]) -> Dataset:
        kept = {section: raw[section] for section in ("data", "model") if section in raw}
        return loaded(json.dumps(kept, sort_keys=True, default=str))

    return lambda layers: resolve_layers(layers, load).config


def flat_config(config: Config) -> dict[str, Any]:
    """A config with flat keys, without what runs may differ in."""
    return {key: value for key, value in flatten(config.to_dict()).items() if key not in NOT_COMPARED}


def differing_values(configs: Sequence[Mapping[str, Any]], compared: Sequence[str]) -> list[str]:
    """The keys, besides the compared ones, that have different values in the configs that have them; kinds first."""
    names = dict.fromkeys(key for config in configs for key in config if key not in compared)
    found = []
    for key in names:
        values = [config[key] for config in configs if key in config]
        if any(value != values[0] for value in values):
            found.append(key)
    return sorted(found, key=lambda key: not key.endswith(".kind"))


def fair_layer(held: Sequence[tuple[str, Any, frozenset[int]]], index: int) -> list[Layer]:
    """The settings that are held equal, for the variant with that index, as far as it has them."""
    mine = {key: value for key, value, having in held if index in having}
    return [("--fair", nest(mine))] if mine else []


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``{"sites.kind": ...}`` -> ``{"sites": {"kind": ...}}``."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return nested


def by_value(values: Mapping[str, Any]) -> str:
    """The labels of each value: ``false: round_robin / ksd, true: hip``."""
    groups: dict[str, list[str]] = {}
    for label, value in values.items():
        groups.setdefault(show(value), []).append(label)
    return ", ".join(f"{value}: {' / '.join(labels)}" for value, labels in groups.items())


def label_of(values: Mapping[str, Any]) -> str:
    """Return the label of a variant: kinds by their names, other values with their keys."""
    parts = []
    for key, value in values.items():
        name = key.rpartition(".")[2]
        parts.append(show(value) if name in ("kind", "name") else f"{name}={show(value)}")
    return " + ".join(parts)


def slug(label: str) -> str:
    """A label as the beginning of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "-", label.replace(" + ", "-")).strip("-.")


def unique(labels: Sequence[str]) -> list[str]:
    """The labels, with a number if several would give the same folder."""
    slugs = [slug(label) for label in labels]
    return [label if slugs.count(slugs[i]) == 1 else f"{label} #{i + 1}" for i, label in enumerate(labels)]


def _refuse_same(flat: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> None:
    for (i, first), (j, second) in itertools.combinations(enumerate(flat), 2):
        if first == second:
            raise InputError(f"--over: {labels[i]} and {labels[j]} give the same config; leave one of them out")
