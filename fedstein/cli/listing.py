"""The commands ``fedstein list`` and ``fedstein data list``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from fedstein.data import DATASETS
from fedstein.data.fetch import FILES_OF, cache_path
from fedstein.data.partition_kinds import PARTITION_KINDS
from fedstein.errors import InputError
from fedstein.evaluation.metrics import METRICS
from fedstein.federation.codecs import CODECS
from fedstein.inference.methods import METHODS
from fedstein.inference.sites import SITES
from fedstein.models import MODELS
from fedstein.registry import Registry
from fedstein.selection import DRAWS, SCHEMES
from fedstein.stein import KERNELS


def registries() -> Iterator[tuple[str, str, str]]:
    """Yield (section, name, description) of everything that a config can name."""
    yield from described("model", MODELS)
    for name, dataset in DATASETS.items():
        yield "data", name, dataset.description
    for kind, partition in PARTITION_KINDS.items():
        yield "partition", kind, partition.about
    yield from described("sites", SITES)
    yield from described("selection", SCHEMES)
    for name, rule in DRAWS.items():
        yield "selection.draw", name, rule.about
    yield from described("algorithm", METHODS)
    yield from described("algorithm.kernel", KERNELS)
    yield from described("channel.codec", CODECS)
    yield from described("evaluate.metrics", METRICS)


def described(section: str, registry: Registry[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (section, name, description) of the parts of a family. A plug-in that cannot be used says why."""
    for name in registry:
        try:
            yield section, name, registry[name].about
        except InputError as error:
            yield section, name, f"cannot be used: {error}"


def registry_table() -> Table:
    """Build the table of ``fedstein list``."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("section", "name", "what it is"):
        grid.add_column(column)
    previous = ""
    for section, name, about in registries():
        grid.add_row(section if section != previous else "", name, about)
        previous = section
    return grid


def dataset_table() -> Table:
    """Build the table of ``fedstein data list``."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "train", "test", "features", "classes", "licence", "where it is"):
        grid.add_column(column, justify="right" if column in ("train", "test", "features", "classes") else "left")
    for name, info in DATASETS.items():
        where = info.origin
        if info.origin == "fetched":
            where = (
                "cache" if cache_path(name).exists() else f"data get {FILES_OF.get(name, name).removesuffix('-full')}"
            )
        counts = [f"{n:,}" if n else "-" for n in (info.train_rows, info.test_rows, info.features, info.classes)]
        grid.add_row(name, *counts, info.licence, where)
    return grid
