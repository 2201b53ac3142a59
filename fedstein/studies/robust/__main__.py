"""Run or continue the study of lying clients. Lines that the table already has are not computed again.

python -m fedstein.studies.robust --out DIR
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean

from fedstein.files import write_bytes
from fedstein.report.liar_figure import Line, draw_liars
from fedstein.studies.robust.lies import LIES, federation_with_liars
from fedstein.studies.tables import add, known, lines_of

SCHEMES = {"round_robin": "Round robin", "ksd": "KSD", "hip": "HIP"}
SHARES = ((0.0, 0.2, 0.4), (0.1, 0.3))  # the first shares run first, with all seeds
TITLES = {"labels": "Wrong labels", "scaled": "Sites turned round, times 10", "largest": "Wrong labels, largest report"}


def plan(seeds: int) -> list[tuple[str, str, float, bool, int]]:
    """List the runs in order. Without liars one lie stands for all, and schemes without reports skip ``largest``."""
    return [
        (scheme, lie, share, protected, seed)
        for shares in SHARES
        for seed in range(seeds)
        for share in shares
        for lie in LIES
        for scheme in SCHEMES
        for protected in (False, True)
        if (share or lie == LIES[0]) and not (lie == "largest" and scheme != "ksd")
    ]


def lines_for(path: Path, lie: str) -> list[Line]:
    """Mean accuracies by share of liars, for the figure."""
    found, rows = [], lines_of(path)
    for scheme, title in SCHEMES.items():
        for protected in (False, True):
            own = [row for row in rows if row["scheme"] == scheme and row["robust"] == str(int(protected))]
            own = [row for row in own if row["lie"] == lie or float(row["share"]) == 0]
            shares = sorted({float(row["share"]) for row in own})
            values = [[float(r["accuracy"]) for r in own if float(r["share"]) == share] for share in shares]
            if len(shares) > 1:
                found.append(
                    Line(title, protected, shares, [fmean(v) for v in values], [(min(v), max(v)) for v in values])
                )
    return found


def main() -> None:
    """Read the command line, fill the table, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    table = options.out / "liars.csv"
    done = known(table, ("scheme", "lie", "share", "robust", "seed"))
    for scheme, lie, share, protected, seed in plan(options.seeds):
        if (scheme, lie, f"{share:g}", str(int(protected)), str(seed)) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            add(table, federation_with_liars(scheme, lie, share, protected, seed, Path(folder)))
    panels = [(title, lines_for(table, lie)) for lie, title in TITLES.items()]
    write_bytes(options.out / "liars.png", draw_liars(panels)["png"])


if __name__ == "__main__":
    main()
