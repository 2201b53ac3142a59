"""The files of a benchmark: ``bench.json``, ``bench.md`` with its tables, and ``growth.png``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedstein.files import disk_errors, write_bytes, write_json
from fedstein.report.style import COLOURS, as_png, figure, style
from fedstein.studies.markdown import table

Table = tuple[str, list[str], list[list[str]]]  # title, columns, rows


def write_bench(document: Mapping[str, Any], out: Path) -> list[Path]:
    """Write the files.

    Args:
        document: The document of the benchmark.
        out: The folder.

    Returns:
        The paths of the files.

    Raises:
        InputError: If the folder is not writable.
    """
    paths = write_page("bench", document, markdown(document), out)
    with disk_errors(out):
        write_bytes(out / "growth.png", scaling_figure(document["growth"]))
    return [*paths, out / "growth.png"]


def write_page(name: str, document: Mapping[str, Any], page: str, out: Path) -> list[Path]:
    """Write a document and its page.

    Args:
        name: The name of both files, without its ending.
        document: What was measured.
        page: The page in Markdown.
        out: The folder.

    Returns:
        The paths of ``NAME.json`` and ``NAME.md``.

    Raises:
        InputError: If the folder is not writable.
    """
    paths = [out / f"{name}.json", out / f"{name}.md"]
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_json(paths[0], document)
        write_bytes(paths[1], page.encode())
    return paths


def markdown(document: Mapping[str, Any]) -> str:
    """Return the page ``bench.md``."""
    lines = ["# Benchmark", "", described(document), ""]
    for title, columns, rows in tables(document):
        lines += [f"## {title}", "", *table(columns, rows), ""]
        if title.startswith("How cost grows"):
            lines += ["![growth](growth.png)", ""]
    return "\n".join(lines)


def described(document: Mapping[str, Any]) -> str:
    """Describe the machine and the method of measurement."""
    found = document["machine"]
    memory = f"{found['memory'] / 2**30:.0f} GiB" if found["memory"] else "memory unknown"
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    kind = "Quick run" if document["quick"] else "Full run"
    return (
        f"{found['processor']}, {found['cores']} cores of it, {memory}, {found['system']}; {found['threads']} threads "
        f"on {found['device']}; Python {found['python']}, {packages}. Times are wall time unless they say CPU; ratios "
        f"are of the minima over the repeats, and in brackets of the medians. {kind} of {document['seconds'] / 60:.1f} "
        "minutes."
    )


def tables(document: Mapping[str, Any]) -> list[Table]:
    """Return all tables: title, columns and rows.

    Args:
        document: The document of the benchmark.
    """
    return [
        goals_table(document["goals"]),
        steps_table(document["steps"]),
        ratios_table(document["ratios"]),
        rounds_table(document["rounds"]),
        scaling_table(document["growth"]),
        startup_table(document["startup"]),
    ]


def goals_table(goals: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the goals."""
    rows = []
    for goal in goals:
        bound = f"{'at least' if goal['at_least'] else 'at most'} {goal['limit']:g}{space(goal['unit'])}"
        got = "-" if goal["got"] is None else f"{goal['got']:.2f}{space(goal['unit'])}"
        if goal["median"] is not None:
            got += f" ({goal['median']:.2f})"
        rows.append([goal["name"], bound, got, {True: "yes", False: "no", None: "not measured"}[goal["reached"]]])
    return "Goals", ["goal", "limit", "here", "reached"], rows


def space(unit: str) -> str:
    """Return the unit with a space before it."""
    return f" {unit}" if unit else ""


def steps_table(steps: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the table of one SVGD step."""
    keys = ("wall_min", "wall_median", "cpu_min", "cpu_median")
    rows = [[name, *(milliseconds(found[key]) for key in keys)] for name, found in steps.items()]
    return "One SVGD step, ms", ["", "wall, min", "median", "CPU, min", "median"], rows


def ratios_table(ratios: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the table of the ratios."""
    rows = [[name, f"{found['min']:.2f}", f"{found['median']:.2f}"] for name, found in ratios.items()]
    return "Ratios", ["", "of the minima", "of the medians"], rows


def rounds_table(rounds: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of a round by phases."""
    keys = ("report", "choose", "train", "apply", "evaluate", "wall_median", "cpu_median", "products")
    names = [found["name"].replace(" sites", "").replace(" x ", "x") for found in rounds]  # for 80 columns
    rows = [[name, *(f"{found[key]:.0f}" for key in keys)] for name, found in zip(names, rounds, strict=True)]
    columns = ["", "report", "choose", "train", "apply", "eval", "whole", "CPU", "floor"]
    return "A round of the BNN, ms (medians; floor: its matrix products, without its evaluation)", columns, rows


def scaling_table(growth: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the growth of the cost."""
    rows = []
    for curve in growth:
        points = ", ".join(
            f"{size:,}: {milliseconds(found['wall_min'])}"
            for size, found in zip(curve["sizes"], curve["times"], strict=True)
        )
        rows.append([curve["name"], curve["axis"], points, f"{curve['exponent']:.2f}"])
    return "How cost grows", ["", "over", "ms by size (min)", "exponent"], rows


def startup_table(startup: Mapping[str, Any]) -> Table:
    """Return the table of start-up and memory."""
    rows = [
        [f"import {label}", f"{startup['imports'][key]:.2f} s"]
        for label, key in (("jax", "jax"), ("fedstein, after it", "fedstein"), ("all that fit needs, after it", "all"))
    ]
    for name in startup["cold"]:
        for when, label in (("cold", "nothing compiled yet"), ("warm", "second run")):
            run = startup[when][name]
            rows.append([f"{name}: first round, {label}", f"{run['first_round']:.1f} s"])
        compiling = startup["cold"][name]["first_round"] - startup["warm"][name]["first_round"]
        rows.append([f"{name}: compilation, part of it", f"{compiling:.1f} s"])
        rows.append([f"{name}: peak memory of the run", f"{startup['cold'][name]['peak'] / 2**20:.0f} MiB"])
    for clients, found in startup["memory_by_clients"].items():
        if clients != "ratio":
            peak, sites = found["peak"] / 2**20, found["sites"]
            rows.append([f"{int(clients):,} clients, pool 100: peak memory, {sites} with sites", f"{peak:.0f} MiB"])
    return "Start-up and memory", ["", ""], rows


def milliseconds(value: float) -> str:
    """Format a time with a suitable number of digits."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def scaling_figure(growth: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw one log-log panel for each of K, N and d."""
    axes_names = list(dict.fromkeys(curve["axis"] for curve in growth))
    with style():
        fig = figure(3.8, 4.2 * len(axes_names))
        panels = fig.subplots(1, len(axes_names), squeeze=False)[0]
        for panel, axis in zip(panels, axes_names, strict=True):
            for colour, curve in zip(COLOURS, (c for c in growth if c["axis"] == axis), strict=False):
                times = [found["wall_min"] for found in curve["times"]]
                label = f"{curve['name']}: exponent {curve['exponent']:.2f}"
                panel.loglog(curve["sizes"], times, marker="o", markersize=4, color=colour, label=label)
            panel.set_xlabel(axis)
            panel.set_ylabel("ms")
            low, high = panel.get_ylim()
            panel.set_ylim(low, high * 6)  # room for the legend
            panel.legend(loc="upper left", fontsize=8)
        return as_png(fig)
