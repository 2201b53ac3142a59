"""Writing ``theory.csv``, ``theory_rounds.csv``, ``theory.png|svg|pdf`` and the page ``theory.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedstein.files import disk_errors, write_bytes
from fedstein.report.theory_figure import draw_theory
from fedstein.studies.markdown import table
from fedstein.studies.reproduce.plan import SETTINGS
from fedstein.studies.reproduce.theory.runs import EPSILON, EVERY, LENGTHS, SETTING, TheoryJob
from fedstein.studies.reproduce.theory.tables import (
    INDICATORS,
    Over,
    Row,
    as_csv,
    client_rows,
    over_seeds,
    read_measurements,
    round_row,
    share_of_best,
)
from fedstein.studies.reproduce.variants import VARIANTS

NAMES = {"ksd": "KSD", "hip": "HIP", "rate": "hip(s̃_k, s_global)"}


def write_theory(jobs: Sequence[TheoryJob], folders: Mapping[TheoryJob, Path], out: Path, command: str) -> list[str]:
    """Write all files.

    Args:
        jobs: The jobs.
        folders: The run folder of each job.
        out: The folder to write to.
        command: The command that makes the page.

    Returns:
        A few lines for the terminal.

    Raises:
        InputError: If the folder is not writable.
    """
    looks = [seen for job in jobs for seen in read_measurements(job, folders[job])]
    clients = [row for seen in looks for row in client_rows(seen)]
    rounds = [round_row(seen) for seen in looks]
    files = {
        "theory.csv": as_csv(clients).encode(),
        "theory_rounds.csv": as_csv(rounds).encode(),
        "theory.md": page(rounds, jobs[0].density, command).encode(),
        **{f"theory.{ending}": content for ending, content in draw_theory(clients, rounds).items()},
    }
    with disk_errors(out):
        for name, content in files.items():
            write_bytes(out / name, content)
    return [
        f"{VARIANTS[scheme].title} runs, rank correlation with the true global decrease (limit): "
        + ", ".join(f"{NAMES[name]} {spread(over_seeds(rows, f'rank_{name}_global_limit'))}" for name in INDICATORS)
        for scheme, rows in by_scheme(rounds).items()
    ]


def by_scheme(rounds: Sequence[Row]) -> dict[str, list[Row]]:
    """Group rows by the selection scheme."""
    found: dict[str, list[Row]] = {}
    for row in rounds:
        found.setdefault(row["scheme"], []).append(row)
    return found


def page(rounds: Sequence[Row], density: str, command: str) -> str:
    """Write the page."""
    schemes = by_scheme(rounds)
    seeds, clients = len({row["seed"] for row in rounds}), rounds[0]["clients"]
    lines = [
        "# Section III, measured",
        "",
        f"`{command}`",
        "",
        f"{SETTINGS[SETTING].title}, {density} density, {seeds} seed{'s' if seeds > 1 else ''}; "
        f"all {clients} candidates were measured before round 1 and before every {EVERY}th round after it, "
        f"{len(rounds)} times in all. "
        "The decrease is the true one along T = id + εφ_k, φ_k the SVGD direction for the tilted score on the full "
        "shard: mean_n[log p(Tθ_n) − log p(θ_n) + log|det ∇T(θ_n)|], p the tilted target of client k (local) or p₀∏p_m "
        "(global).",
        "",
        f"Three lengths: *limit*, ε = {EPSILON:g}; *step*, the ε_k at which a coordinate moves, root mean square, as "
        "far as the run's first AdaGrad step moves it; *round*, L times that.",
        "",
        "## Rank correlation with the true decrease",
        "",
        "Spearman's over the candidates of a round; the median over rounds, its mean and 95% interval over seeds.",
        "",
        *rank_table(schemes),
        "",
        "## The gain of drawing by an indicator",
        "",
        "The gain in true global decrease of drawing from P_k over a uniform draw, relative to the gain of always "
        "drawing the best candidate.",
        "",
        *gain_table(schemes),
        "",
        "## Δ, signs and clipping",
        "",
        *(f"- {line}" for scheme, rows in schemes.items() for line in facts(rows, scheme)),
        "",
        "## How to read it",
        "",
        "In the limit KSD has rank correlation 1 with the local decrease and hip(s̃_k, s_global) with the global one: "
        "this follows from the theory and checks the numbers. The runs show the rest: whether the "
        "paper's indicators rank the *global* decrease, whether a real step is short enough for the limit to count, "
        "and whether there is a candidate left whose step lowers the global free energy at all. Intervals are "
        "Student's and not confined to −1..1.",
    ]
    return "\n".join(lines) + "\n"


def rank_table(schemes: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the table of rank correlations."""
    head = ["run", "indicator", *(f"{which}, {length}" for which in ("local", "global") for length in LENGTHS)]
    body = [
        [
            VARIANTS[scheme].title,
            NAMES[name],
            *(
                spread(over_seeds(rows, f"rank_{name}_{which}_{length}"))
                for which in ("local", "global")
                for length in LENGTHS
            ),
        ]
        for scheme, rows in schemes.items()
        for name in INDICATORS
    ]
    return table(head, body)


def gain_table(schemes: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the table of gains."""
    body = []
    for scheme, rows in schemes.items():
        for name in INDICATORS:
            shares = [over_seeds(share_of_best(rows, name, length), "share") for length in LENGTHS]
            body.append([VARIANTS[scheme].title, NAMES[name], *map(spread, shares)])
    return table(["run", "P_k from", *LENGTHS], body)


def facts(rows: Sequence[Row], scheme: str) -> list[str]:
    """Count signs and clipping over the measurements of one scheme."""
    reports = sum(row["clients"] for row in rows)
    run = f"{VARIANTS[scheme].title} runs:"
    found = [
        f"{run} Δ_{NAMES[name]}/ε: median {spread(over_seeds(rows, f'delta_{name}'), '.3g')}, "
        f"minimum {min(row[f'delta_{name}'] for row in rows):.3g}; as a share of the mean indicator "
        f"{spread(over_seeds(relative(rows, name), 'part'), '.3f')}."
        for name in ("ksd", "hip")
    ]
    negative = [row for row in rows if row["negative_hip"]]
    clipped = sum(row["negative_hip"] for row in rows)
    words = (
        f"{run} HIP was negative in {len(negative)} of {len(rows)} measurements, for {clipped} of {reports} candidates"
    )
    if not negative:
        found.append(f"{words}: clipping changed nothing.")
    else:
        lost = sum(row["normaliser_hip"] <= 0 for row in negative)
        raised = [
            row["normaliser_hip_clipped"] / row["normaliser_hip"] for row in negative if row["normaliser_hip"] > 0
        ]
        total = f"Its normaliser is zero or below in {lost} of these" if lost else "Its normaliser stays above zero"
        factor = f"; clipping raises it by up to {max(raised) - 1:.1%}" if raised else ""
        least = [min(row[key] for row in negative) for key in ("delta_hip_as_written", "delta_hip")]
        found.append(
            f"{words}: definition 2 as written is no distribution there. {total}{factor}. The smallest Δ_HIP/ε of "
            f"these is {least[0]:.3g} as written, {least[1]:.3g} clipped."
        )
    rising = [f"{sum(row[f'rising_{length}'] for row in rows) / reports:.1%} ({length})" for length in LENGTHS]
    found.append(f"{run} candidates whose step would raise the global free energy: {', '.join(rising)}.")
    return found


def relative(rows: Sequence[Row], name: str) -> list[Row]:
    """Add a column ``part``: Delta relative to the mean indicator, for rows where that is positive."""
    kept = [row for row in rows if row[f"normaliser_{name}"] > 0]
    return [{**row, "part": row[f"delta_{name}"] * row["clients"] / row[f"normaliser_{name}"]} for row in kept]


def spread(over: Over | None, digits: str = "z.2f") -> str:
    """Format a mean and its interval."""
    if over is None:
        return "–"
    if over.low is None or over.high is None:
        return format(over.mean, digits)
    return f"{over.mean:{digits}} ({over.low:{digits}} to {over.high:{digits}})"
