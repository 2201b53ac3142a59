"""The page on when selection helps: accuracy by order of clients, scheme, kind of sites and number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from statistics import fmean
from typing import NamedTuple

from fedstein.report.dependence_figure import Point
from fedstein.studies.markdown import table
from fedstein.studies.reproduce.evidence import decide, interval, levels_of
from fedstein.studies.reproduce.plan import COMBINED, SETTINGS
from fedstein.studies.reproduce.run_lines import Lines, values_by_seed
from fedstein.studies.reproduce.variants import VARIANTS

ORDERS = ("blocks", "dealt", "shuffled")
SCHEMES = {
    "Round robin": ("round_robin", "curvature_given"),
    "Random": ("random", "curvature_random"),
    "KSD": ("ksd", "curvature_ksd"),
    "HIP": ("hip", "curvature_hip"),
}
SITES = {"the paper's, reference": "reference", "the paper's, log": "log", "curvature": ""}
IMPORTANCE, COVERAGE = "curvature_hip", "curvature"  # each alone: HIP in proportion, reshuffled round robin


class Cell(NamedTuple):
    """One scheme with one kind of sites in one order of the clients of a setting; values by seed."""

    setting: str
    sites: str
    scheme: str
    order: str
    late: dict[int, float]
    unrest: dict[int, float]
    early: dict[int, float]


def cells_of(lines: Lines) -> list[Cell]:
    """Return the cells for which there are runs."""
    cells = []
    for setting in SETTINGS:
        for sites, density in SITES.items():
            for scheme, names in SCHEMES.items():
                for order in ORDERS:
                    late, unrest, early = (
                        values_by_seed(
                            lines,
                            order=order,
                            density=density,
                            setting=setting,
                            scheme=names[not density],
                            measure=name,
                        )
                        for name in ("late", "unrest", "early")
                    )
                    if late:
                        cells.append(Cell(setting, sites, scheme, order, late, unrest, early))
    return cells


def dependence_page(lines: Lines, command: str) -> str:
    """Write the page as Markdown: all cells, what the order and the scheme change, and schemes that combine both.

    Args:
        lines: The lines of the runs.
        command: The command that makes the page.

    Returns:
        The page.
    """
    cells = cells_of(lines)
    heads = ["setting", "sites", "scheme", *ORDERS, "seeds"]
    rows = []
    for setting, sites, scheme in dict.fromkeys((c.setting, c.sites, c.scheme) for c in cells):
        here = {c.order: c for c in cells if (c.setting, c.sites, c.scheme) == (setting, sites, scheme)}
        counts = sorted({len(c.late) for c in here.values()})
        seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        rows.append([SETTINGS[setting].title, sites, scheme, *(_shown(here.get(order)) for order in ORDERS), seeds])
    return "\n".join(
        [
            "# When selection pays",
            "",
            f"`{command}`",
            "",
            "Accuracy, mean of the last quarter of the rounds over seeds, with the standard deviation within a run in "
            "brackets. The paper's sites have the step size of the DSVGD authors, curvature sites the "
            "tuned one. Round robin takes clients in the order of their numbers.",
            "",
            "![Accuracy by sites, scheme and order](dependence.png)",
            "",
            *table(heads, rows),
            "",
            "## What changes the accuracy",
            "",
            "The difference between the best and the worst of four schemes in one order (the largest over orders), and "
            "between the best and the worst order for one scheme (the largest over schemes); 95% interval of that "
            "difference, paired by seed. The pair was picked for being the largest, so this tests nothing.",
            "",
            *table(["setting", "sites", "rounds", "by the scheme", "by the order"], spreads(cells)),
            "",
            *combined(lines),
        ]
    )


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    within = f" ({fmean(cell.unrest.values()):.3f})".replace("0.", ".") if cell.unrest else ""
    return f"{fmean(cell.late.values()):.3f}".replace("0.", ".") + within


def spreads(cells: Sequence[Cell]) -> list[list[str]]:
    """Return for each setting and kind of sites what the scheme and what the order changes at most."""
    rows = []
    for setting, sites in dict.fromkeys((c.setting, c.sites) for c in cells):
        here = [c for c in cells if (c.setting, c.sites) == (setting, sites)]
        orders = [[c for c in here if c.order == order] for order in ORDERS]
        schemes = [[c for c in here if c.scheme == scheme] for scheme in SCHEMES]
        for when in ("late", "early"):
            title = {"late": "last quarter", "early": "first quarter"}[when]
            changed = (_largest(orders, "order", when), _largest(schemes, "scheme", when))
            rows.append([SETTINGS[setting].title, sites, title, *changed])
    return rows


def _largest(groups: Sequence[Sequence[Cell]], common: str, when: str) -> str:
    """The largest difference within a group of cells, and which two it is between."""
    best: tuple[float, str] | None = None
    for high, low in (pair for group in groups for pair in permutations(group, 2)):
        more, less = (cell.late if when == "late" else cell.early for cell in (high, low))
        seeds = sorted(more.keys() & less.keys())
        if not seeds:
            continue
        gap = interval([more[s] - less[s] for s in seeds])
        if best is None or gap.mean > best[0]:
            names = (high.scheme, low.scheme) if common == "order" else (high.order, low.order)
            where = high.order if common == "order" else high.scheme
            span = "one seed" if len(seeds) < 2 else f"{gap.low:+.4f} to {gap.high:+.4f}, {len(seeds)} seeds"
            best = gap.mean, f"{gap.mean:+.4f} ({span}): {where}, {names[0]} over {names[1]}"
    return best[1] if best else "–"


def combined(lines: Lines) -> list[str]:
    """Compare the schemes that combine importance and coverage with each of the two alone, early and late."""
    found: list[tuple[list[str], list[float]]] = []
    for setting in SETTINGS:
        for order in ORDERS:
            for scheme in (name for name in COMBINED if name != COVERAGE):
                for measure, alone in (
                    (measure, alone) for measure in ("early", "late") for alone in (IMPORTANCE, COVERAGE)
                ):
                    ours, theirs = (
                        values_by_seed(lines, order=order, density="", setting=setting, scheme=name, measure=measure)
                        for name in (scheme, alone)
                    )
                    seeds = sorted(ours.keys() & theirs.keys())
                    if len(seeds) > 1:
                        row = [setting, order, scheme, measure, alone]
                        found.append((row, [ours[s] - theirs[s] for s in seeds]))
    if not found:
        return []
    words = decide([levels_of(gaps) for _, gaps in found])
    said = {tuple(row): _verdict(gaps, word) for (row, gaps), word in zip(found, words, strict=True)}
    rows = []
    for setting, order, scheme in dict.fromkeys((r[0], r[1], r[2]) for r, _ in found):
        cells = [
            said.get((setting, order, scheme, measure, alone), "–")
            for measure in ("early", "late")
            for alone in (IMPORTANCE, COVERAGE)
        ]
        rows.append([SETTINGS[setting].title, order, VARIANTS[scheme].title, *cells])
    return [
        "## Importance early, coverage late",
        "",
        "Differences in accuracy, paired by seed, of schemes that combine both, to importance alone (HIP in "
        "proportion) and to coverage alone (round robin, reshuffled in every pass); early is the first quarter of the "
        f"rounds, late the last. Bold is decided, after Holm's correction over the {len(found)} comparisons here.",
        "",
        *table(
            [
                "setting",
                "order",
                "scheme",
                *(f"{m}, to {a}" for m in ("early", "late") for a in ("importance", "coverage")),
            ],
            rows,
        ),
        "",
        f"**{_winner(found, words)}**",
        "",
    ]


def _verdict(gaps: Sequence[float], word: str) -> str:
    mean, low, high = interval(list(gaps))
    text = f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"
    if not word:
        return text
    return f"**{text}, {'no difference that matters' if word == 'alike' else 'above' if mean > 0 else 'below'}**"


def _winner(found: Sequence[tuple[list[str], list[float]]], words: Sequence[str]) -> str:
    """The sentence that names the schemes that are shown to be above each alone somewhere, and never below."""
    places = {(row[0], row[1]) for row, _ in found}
    winners = []
    for scheme in dict.fromkeys(row[2] for row, _ in found):
        good = set()
        for place in places:
            mine = [
                (row, fmean(gaps), word)
                for (row, gaps), word in zip(found, words, strict=True)
                if (row[0], row[1], row[2]) == (*place, scheme)
            ]
            above = {row[4] for row, mean, word in mine if word == "apart" and mean > 0}
            below = any(word == "apart" and mean < 0 for _, mean, word in mine)
            if above == {IMPORTANCE, COVERAGE} and not below:
                good.add(place)
        if good == places:
            winners.append(VARIANTS[scheme].title)
    if winners:
        names = ", ".join(winners)
        return f"Shown to be above each alone, early or late, and below neither, in every setting and order: {names}."
    return "No scheme is shown to be above each alone in every setting and order."


def figure_panels(lines: Lines) -> list[tuple[str, list[Point]]]:
    """Return for each setting with something to compare its title and its points, for ``draw_dependence``.

    A group of sites and order counts with at least two schemes, a setting with at least two such groups.
    """
    panels = []
    cells = cells_of(lines)
    groups: dict[tuple[str, str, str], int] = {}
    for c in cells:
        groups[c.setting, c.sites, c.order] = groups.get((c.setting, c.sites, c.order), 0) + 1
    cells = [c for c in cells if groups[c.setting, c.sites, c.order] > 1]
    for setting in dict.fromkeys(c.setting for c in cells):
        if len({(c.sites, c.order) for c in cells if c.setting == setting}) < 2:
            continue
        points = []
        for c in cells:
            if c.setting == setting:
                found = interval(list(c.late.values()))
                half = found.high - found.mean if len(c.late) > 1 else 0.0
                points.append(Point(c.sites, c.order, c.scheme, found.mean, half))
        panels.append((SETTINGS[setting].title, points))
    return panels
