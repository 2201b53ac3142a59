"""The step size of every method, chosen from multiples of its default on training rows that no client holds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstein.files import disk_errors, write_bytes
from fedstein.report import style
from fedstein.studies.reproduce.plan import BEYOND, SETTINGS, Job
from fedstein.studies.reproduce.variants import TUNED

METHODS = {
    "curvature": "Curvature, round robin",
    "curvature_renewing": "Curvature, HIP renewing, pool of 9",
    "fedavg": "FedAvg, all clients",
    "pooled": "Pooled SVGD",
}
GRID = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)  # multiples of the default
# Additional multiples, if the best one was at the edge of the grid or between two distant ones.
MORE: dict[tuple[str, str], tuple[float, ...]] = {
    ("blr30", "fedavg"): (8.0, 16.0, 32.0, 64.0),
    ("blr120", "fedavg"): (8.0, 16.0, 32.0, 64.0),
    ("blr120", "curvature"): (0.125,),
    ("blr120", "pooled"): (0.125,),
    ("blr30", "curvature_renewing"): (0.125,),
    ("blr120", "curvature_renewing"): (0.125,),
    ("bnn120", "curvature"): (0.75,),
}
BASE = {
    "curvature": {"blr": 0.05, "bnn": 4e-3},
    "curvature_renewing": {"blr": 0.05, "bnn": 4e-3},
    "pooled": {"blr": 0.05, "bnn": 4e-3},
    "fedavg": {"blr": 0.5, "bnn": 0.5},
}
HELD = {"blr120": 0.05}  # the held-out share of the training rows; the clients of this setting need nearly all rows
USUAL = 0.2


class Curve(NamedTuple):
    """One method in one setting: pairs (step size, held-out accuracy). The accuracy is None if the run diverged."""

    setting: str
    method: str
    points: tuple[tuple[float, float | None], ...]

    @property
    def best(self) -> float | None:
        """The step size with the best accuracy, or None."""
        scored = [(accuracy, step) for step, accuracy in self.points if accuracy is not None]
        return max(scored)[1] if scored else None


def grid_of(setting: str, method: str) -> list[float]:
    """Return the step sizes to try for a method in a setting."""
    factors = sorted((*GRID, *MORE.get((setting, method), ())))
    return [factor * BASE[method][setting[:3]] for factor in factors]


def raw_config(setting: str, method: str, rounds: int | None = None) -> dict[str, Any]:
    """Return the config of the run to tune: that of the comparison, evaluated every few rounds."""
    figure = BEYOND["sites"]
    usual = figure.rounds[figure.panels.index(setting)]
    raw = Job(setting, method, "", 0, rounds or usual, False).config(1)
    raw["algorithm"]["step_size"] = BASE[method][setting[:3]]
    return {**raw, "evaluate": {"every": 8 if setting.startswith("blr") else 4}}


def tune_all(settings: Sequence[str], seeds: int, rounds: int | None, out: Path) -> Iterator[tuple[str, str, Any]]:
    """Tune every method in every setting.

    Args:
        settings: The settings.
        seeds: The number of seeds.
        rounds: The number of rounds, or None for that of the comparison.
        out: The folder for the trials. Trials that it holds are not run again.

    Yields:
        The setting, the method and the trial.
    """
    from fedstein.runs.config import resolve  # imported here because they import JAX
    from fedstein.runs.federate import facts_of, load_dataset
    from fedstein.runs.jax_setup import start_jax
    from fedstein.studies.tuning import hold_out, tune

    for setting in settings:
        for method in METHODS:
            raw = raw_config(setting, method, rounds)
            dataset = load_dataset(raw)
            config, _ = resolve(raw, facts_of(dataset))
            start_jax(config)
            held = hold_out(dataset, HELD.get(setting, USUAL))
            for trial in tune(config, held, grid_of(setting, method), seeds, out / f"{setting}-{method}.json"):
                yield setting, method, trial


def curves_of(trials: Sequence[tuple[str, str, Any]]) -> list[Curve]:
    """Average the trials over seeds.

    Args:
        trials: Triples (setting, method, trial).

    Returns:
        One curve for each setting and method.
    """
    found = []
    for setting, method in dict.fromkeys((s, m) for s, m, _ in trials):
        mine = [trial for s, m, trial in trials if (s, m) == (setting, method)]
        points = []
        for step in sorted({trial.step_size for trial in mine}):
            scores = [trial.accuracy for trial in mine if trial.step_size == step]
            points.append((step, None if None in scores else sum(scores) / len(scores)))
        found.append(Curve(setting, method, tuple(points)))
    return found


def write_steps(curves: Sequence[Curve], out: Path) -> list[str]:
    """Write ``steps.csv``, ``steps.md`` and ``steps.png``.

    Args:
        curves: The curves.
        out: The folder.

    Returns:
        The lines of the table.

    Raises:
        InputError: If the folder is not writable.
    """
    lines = page(curves)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(out / "steps.csv", as_csv(curves).encode())
        write_bytes(out / "steps.md", ("\n".join(lines) + "\n").encode())
        write_bytes(out / "steps.png", draw(curves))
    return lines


def as_csv(curves: Sequence[Curve]) -> str:
    """Return all points as CSV."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["setting", "method", "step_size", "held_out_accuracy"])
    for curve in curves:
        for step, accuracy in curve.points:
            shown = "" if accuracy is None else format(accuracy, ".6g")
            writer.writerow([curve.setting, curve.method, format(step, "g"), shown])
    return buffer.getvalue()


def page(curves: Sequence[Curve]) -> list[str]:
    """Write a table with a row for each curve: the best step size in bold, and the one that the comparison uses."""
    lines = ["| setting | method | step size: held-out accuracy | taken |", "|---|---|---|---|"]
    for curve in curves:
        shown = []
        for step, accuracy in curve.points:
            words = f"{step:g}: " + ("diverged" if accuracy is None else f"{accuracy:.4f}")
            shown.append(f"**{words}**" if step == curve.best else words)
        taken = TUNED[curve.setting][curve.method]
        lines.append(f"| {SETTINGS[curve.setting].title} | {METHODS[curve.method]} | {', '.join(shown)} | {taken:g} |")
    return lines


def draw(curves: Sequence[Curve]) -> bytes:
    """Draw a panel for each setting: held-out accuracy against the step size as a multiple of the default."""
    settings = list(dict.fromkeys(curve.setting for curve in curves))
    names = list(METHODS)
    with style.style():
        columns = min(2, len(settings))
        rows = -(-len(settings) // columns)
        fig = style.figure(2.9 * rows + 0.4, width=style.WIDTH if columns == 2 else 6.0)
        axes = list(fig.subplots(rows, columns, squeeze=False).flat)
        for ax in axes[len(settings) :]:
            ax.set_visible(False)
        for ax, setting in zip(axes, settings, strict=False):
            mine = {curve.method: curve for curve in curves if curve.setting == setting}
            for method, curve in mine.items():
                index, base = names.index(method), BASE[method][setting[:3]]
                known = [(step / base, accuracy) for step, accuracy in curve.points if accuracy is not None]
                ax.plot(*zip(*known, strict=True), color=style.colour(index), marker="o", markersize=4)
            ax.set(title=SETTINGS[setting].title, xlabel="Step size / default", ylabel="Held-out accuracy")
            ax.set(ylim=limits(list(mine.values())))
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:g}")
        style.legend(fig, list(METHODS.values()), band=False)
        return style.as_png(fig)


def limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """Choose the limits of the y axis so that a few very low values do not hide the others."""
    known = [accuracy for curve in curves for _, accuracy in curve.points if accuracy is not None]
    best = [max((a for _, a in curve.points if a is not None), default=0.0) for curve in curves]
    low = max(min(known), min(best) - 1.5 * (max(best) - min(best)) - 0.02)
    return low - 0.004, max(known) + 0.004
