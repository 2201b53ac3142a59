"""Run the attacks and write their tables and figures.

python -m fedstein.studies.attacks --out DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.files import write_bytes
from fedstein.privacy.accounting import mu_of
from fedstein.report.attack_figures import Curve, draw_images, draw_rates
from fedstein.studies.attacks import inversion, membership
from fedstein.studies.attacks.bounds import allowed, allowed_area, area, lower_bounds, rates, true_rate_at
from fedstein.studies.attacks.membership import DELTA, MESSAGES, Scores
from fedstein.studies.tables import add

CANARIES = {"rare row": 0.999, "typical row": 0.5}
EPSILONS = (8.0, 3.0, 1.0)
LOW = 0.01  # the false positive rate of the table; a thousand plays cannot count a lower one
FAINT = np.geomspace(1e-4, 1 - 1e-4, 200)


def membership_line(scores: Scores, epsilon: float, **named: Any) -> dict[str, Any]:
    """A line of ``membership.csv``; epsilon 0 is not private."""
    found, proved = rates(*scores), lower_bounds(*scores, DELTA)
    mu = mu_of(epsilon, DELTA) if epsilon else float("inf")
    most = float(allowed(mu, np.array([LOW]))[0]) if epsilon else 1.0
    return {
        **named, "epsilon": epsilon, "plays": len(scores.without), "auc": area(found),
        "auc_allowed": allowed_area(mu) if epsilon else 1.0,
        "tpr_at_1_percent": true_rate_at(found, LOW), "allowed_at_1_percent": most,
        "epsilon_proved": proved.plain, "epsilon_proved_gaussian": proved.gaussian,
    }  # fmt: skip


def attack_membership(out: Path, plays: int, seed: int) -> None:
    """Play every guesser against every message, and draw the curves of the rare row."""
    table = out / "membership.csv"
    table.unlink(missing_ok=True)
    panels: list[tuple[str, dict[str, Curve]]] = [("Knows the population", {}), ("Knows all other rows", {})]

    def record(panel: int, label: str, scores: Scores, epsilon: float, canary: str, message: str) -> None:
        knows = ("population", "all other rows")[panel]
        add(table, membership_line(scores, epsilon, knows=knows, canary=canary, message=message))
        if canary == "rare row":
            panels[panel][1][label] = Curve(*rates(*scores))
            if epsilon and panel:
                panels[panel][1][f"allowed by {label}"] = Curve(FAINT, allowed(mu_of(epsilon, DELTA), FAINT), True)

    for canary, quantile in CANARIES.items():
        row, others = membership.canary(quantile)
        for message in MESSAGES:
            play = membership.unprotected(message, row)
            scores = membership.guess_knowing_the_population(play, row, others, plays, seed)
            record(0, f"{message}, not private", scores, 0.0, canary, message)
        for epsilon in EPSILONS:
            play = membership.protected(row, epsilon)
            scores = membership.guess_knowing_the_population(play, row, others, plays, seed)
            record(0, f"epsilon {epsilon:g}", scores, epsilon, canary, "all releases")
            scores = membership.guess_knowing_all_rows(row, others, epsilon, 2 * plays, seed)
            record(1, f"epsilon {epsilon:g}", scores, epsilon, canary, "all releases")
    write_bytes(out / "membership.png", draw_rates(panels)["png"])


def attack_digits(out: Path, clients: int, seed: int) -> None:
    """Reconstruct digits, and draw those of the first clients."""
    table, random, data = out / "digits.csv", np.random.default_rng([seed, 18]), inversion.digits()
    table.unlink(missing_ok=True)
    shown: dict[str, list[np.ndarray]] = {}

    def attack(name: str, rows: int, count: int, find: Callable[[np.ndarray, np.ndarray, int], np.ndarray]) -> None:
        apart = []
        for number in range(count):
            own = random.choice(len(data.x), rows, replace=False)
            found = find(data.x[own], data.y[own], number)
            apart.append(inversion.errors(data.x[own], found))
            if number == 0 and rows > 1:
                nearest = [found[np.argmin(np.linalg.norm(found - row, axis=1))] for row in data.x[own][:8]]
                shown[f"{rows} rows of a client"] = list(data.x[own][:8])
                shown[name] = nearest
        errors = np.concatenate(apart)
        add(table, {
            "attack": name, "rows": rows, "clients": count, "error": float(np.median(errors)),
            "recovered": float(np.mean(errors < inversion.RECOVERED)),
        })  # fmt: skip

    honest = inversion.honest_particles()
    singles = random.choice(len(data.x), 8, replace=False)
    pairs = [(data.x[i : i + 1], data.y[i : i + 1]) for i in singles]
    shown["one row of each of 8 clients"] = [x[0] for x, _ in pairs]
    shown["from a HIP report"] = [inversion.one_row(inversion.hip_reports(x, y)(honest)) for x, y in pairs]
    for epsilon in (100.0, 8.0, 1.0):
        found = [inversion.from_private(x, y, epsilon, seed) for x, y in pairs]
        shown[f"from a private run, epsilon {epsilon:g}"] = found
    attack("HIP report", 1, clients, lambda x, y, n: inversion.one_row(inversion.hip_reports(x, y)(honest))[None])
    for rows in (2, 5, 10):
        name = f"HIP report, {rows} rows"
        attack(name, rows, clients // 4, lambda x, y, n, r=rows: inversion.few_rows(inversion.hip_reports(x, y), r))  # type: ignore[misc]
    for rows, rounds in ((100, 20), (300, 80)):
        name = f"{rounds} HIP reports at chosen particles"
        attack(name, rows, clients // 4, lambda x, y, n, r=rounds: inversion.isolate(inversion.hip_reports(x, y), r))  # type: ignore[misc]
    for epsilon in (100.0, 8.0, 1.0):
        attack(
            f"private run, epsilon {epsilon:g}", 1, clients,
            lambda x, y, n, e=epsilon: inversion.from_private(x, y, e, n)[None],  # type: ignore[misc]
        )  # fmt: skip
    wanted = ["one row of each of 8 clients", "from a HIP report"]
    wanted += [f"from a private run, epsilon {epsilon:g}" for epsilon in (100.0, 8.0, 1.0)]
    wanted += [
        "10 rows of a client",
        "HIP report, 10 rows",
        "100 rows of a client",
        "20 HIP reports at chosen particles",
    ]
    write_bytes(out / "digits.png", draw_images([(name, np.stack(shown[name])) for name in wanted])["png"])


def main() -> None:
    """Read the command line and run the attacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", action="append", choices=("membership", "digits"))
    parser.add_argument("--plays", type=int, default=1000, help="Plays with the row, and as many without it.")
    parser.add_argument("--clients", type=int, default=16, help="Clients whose digits are reconstructed.")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = options.part or ["membership", "digits"]
    if "digits" in parts:
        attack_digits(options.out, options.clients, options.seed)
    if "membership" in parts:
        attack_membership(options.out, options.plays, options.seed)


if __name__ == "__main__":
    main()
