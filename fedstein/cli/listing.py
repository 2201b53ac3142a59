"""``fedstein list`` and ``fedstein data list``: what the registries hold."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from fedstein.algorithms import ALGORITHMS
from fedstein.data import DATASETS, PARTITIONS
from fedstein.data.fetch import cache_path
from fedstein.models import MODELS
from fedstein.selection import DRAWS, SCHEMES
from fedstein.sites import SITES


def registries() -> Iterator[tuple[str, str, str]]:
    """(section, name, about) of everything that has a name in a config."""
    for kind, model in MODELS.items():
        yield "model", kind, model.about
    for name, dataset in DATASETS.items():
        yield "data", name, dataset.description
    for kind, function in PARTITIONS.items():
        yield "partition", kind, (function.__doc__ or "").strip().splitlines()[0].rstrip(".")
    for kind, site in SITES.items():
        yield "sites", kind, site.about
    for kind, scheme in SCHEMES.items():
        yield "selection", kind, scheme.about
    for name, rule in DRAWS.items():
        yield "selection.draw", name, rule.about
    for kind, algorithm in ALGORITHMS.items():
        yield "algorithm", kind, algorithm.about


def registry_table() -> Table:
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("section", "name", "what it is"):
        grid.add_column(column)
    previous = ""
    for section, name, about in registries():
        grid.add_row(section if section != previous else "", name, about)
        previous = section
    return grid


def dataset_table() -> Table:
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "train", "test", "features", "classes", "licence", "where it is"):
        grid.add_column(column, justify="right" if column in ("train", "test", "features", "classes") else "left")
    for name, info in DATASETS.items():
        where = info.origin
        if info.origin == "fetched":
            where = "cache" if cache_path(name).exists() else f"data get {name.removesuffix('-full')}"
        counts = [f"{n:,}" if n else "-" for n in (info.train_rows, info.test_rows, info.features, info.classes)]
        grid.add_row(name, *counts, info.licence, where)
    return grid
