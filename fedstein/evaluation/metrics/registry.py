"""The registry of metrics: the built-in ones, which every run has, and further ones that a config names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedstein.errors import InputError
from fedstein.evaluation.metrics.accuracy import accuracy
from fedstein.evaluation.metrics.base import ROWS, Metric, Metrics
from fedstein.evaluation.metrics.brier import brier
from fedstein.evaluation.metrics.calibration import ece, mce
from fedstein.evaluation.metrics.nll import nll
from fedstein.evaluation.metrics.rmse import rmse
from fedstein.evaluation.metrics.temperature import temperature
from fedstein.evaluation.prediction import TASKS
from fedstein.registry import Registry

METRICS: Registry[Metric] = Registry("evaluate.metrics", "fedstein.metrics", Metric)
BUILT_IN: tuple[Metric, ...] = tuple(METRICS.register(metric) for metric in (accuracy, nll, brier, ece, mce, rmse))
METRICS.register(temperature)  # for evaluate.temperature; not part of every record
NAMES: tuple[str, ...] = tuple(metric.name for metric in BUILT_IN)  # in the order of rounds.jsonl
# Names that rounds.jsonl, clients-evaluation.json or a strategy's metrics use for something else.
RESERVED = frozenset(
    {
        "round",
        "selected",
        "failed",
        "candidates",
        "candidate_ids",
        "probabilities",
        "reports",
        "faults",
        "evaluation",
        "bytes_down",
        "bytes_up",
        "row_gradients",
        "speculated",
        "seconds",
        "forgotten",
        "stopped",
        ROWS,
        "id",
        "name",
    }
)


def choose_metrics(extra: Iterable[str] = ()) -> tuple[Metric, ...]:
    """The built-in metrics and the extra ones of a config, each once.

    Args:
        extra: Names of registered metrics, or import paths such as ``"my_package.my_module:my_metric"``.

    Returns:
        The metrics in the order in which a record has them.

    Raises:
        InputError: A name is unknown, is taken by another metric or by another key of a record, a task is unknown, or
            two metrics name one sum and mean different things by it.
    """
    chosen = list(BUILT_IN)
    for name in extra:
        metric = METRICS.find(name)
        if metric not in chosen:
            chosen.append(metric)
    check_metrics(chosen)
    return tuple(chosen)


def check_metrics(metrics: Sequence[Metric]) -> None:
    """Raise an error unless these metrics can be computed together.

    Args:
        metrics: The metrics of a run.

    Raises:
        InputError: As ``choose_metrics`` says.
    """
    names: set[str] = set()
    owners: dict[str, Metric] = {}
    for metric in metrics:
        if metric.name in names:
            raise InputError(f"two metrics are called {metric.name!r}; choose another name for one of them")
        if metric.name in RESERVED:
            raise InputError(f"a metric cannot be called {metric.name!r}: records use that name; choose another one")
        if not metric.tasks or not set(metric.tasks) <= set(TASKS):
            raise InputError(f"metric {metric.name!r}: expected tasks among {', '.join(TASKS)}, got {metric.tasks!r}")
        names.add(metric.name)
        for task in metric.tasks:
            for name in metric.zero(task):
                owner = owners.setdefault(name, metric)
                if name == ROWS:
                    raise InputError(f"metric {metric.name!r}: {ROWS!r} is summed for every metric; leave it out")
                if owner.update is not metric.update or owner.merge is not metric.merge:
                    raise InputError(
                        f"metric {metric.name!r}: its sum {name!r} is also one of {owner.name!r}; choose another name "
                        "for the sum, or take the same update and merge functions"
                    )


def no_values(metrics: Sequence[Metric] = BUILT_IN) -> Metrics:
    """Return the metrics of a round that was not evaluated: each is None.

    Args:
        metrics: The metrics of the run.

    Returns:
        None for every metric, by name.
    """
    return {metric.name: None for metric in metrics}
