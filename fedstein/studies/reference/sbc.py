"""Simulation-based calibration (Talts et al. 2018) of federated posteriors: `fedstein reference --sbc`.

In each simulation, theta is drawn from the prior, and rows of several clients are drawn from the likelihood at theta.
The posterior is trained as `fedstein.fit` trains it, with variational sites. If the draws represent the posterior, the
rank of theta among them is uniform, and a 90% interval contains theta in 90% of the simulations. Results are kept in
one JSON file for each model, so that a study that was stopped continues.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from fedstein.api import fit
from fedstein.console import counted
from fedstein.errors import InputError
from fedstein.files import read_json, write_json
from fedstein.studies.reference.simulations import Study, built, names_of, simulate

DRAWS = 99  # posterior draws in each simulation, so that ranks are 0 to 99
BINS = 10
LEVEL = 0.9
EVERY = 5  # simulations between two writes of the file

OnProgress = Callable[[float, str], None]


class Calibration(NamedTuple):
    """The results of the simulations of one model.

    Attributes:
        names: The names of the parameters.
        ranks: Simulations x d, from 0 to DRAWS.
        covered: Simulations x d: whether the central 90% interval contains theta.
        doubtful: The number of simulations whose draws are not to be trusted. They count like the others.
    """

    names: tuple[str, ...]
    ranks: np.ndarray
    covered: np.ndarray
    doubtful: int

    def counts(self) -> np.ndarray:
        """Count the ranks in BINS bins of equal width; d x BINS."""
        bins = self.ranks * BINS // (DRAWS + 1)
        return np.stack([np.bincount(column, minlength=BINS) for column in bins.T])

    def band(self, level: float = 0.99) -> tuple[float, float]:
        """Return the interval in which a bin's count of uniform ranks lies with this probability."""
        tail = (1 - level) / 2
        low, high = stats.binom.ppf((tail, 1 - tail), len(self.ranks), 1 / BINS)
        return float(low), float(high)

    def p_values(self) -> np.ndarray:
        """Return the p-value of a chi-squared test of uniform ranks for each parameter."""
        return np.asarray([stats.chisquare(row).pvalue for row in self.counts()])

    def coverage(self) -> np.ndarray:
        """Return the share of simulations whose 90% interval contains the parameter."""
        return np.asarray(self.covered.mean(axis=0))


def rank_in(theta: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the rank of theta among DRAWS of the draws, and whether the 90% interval of all of them contains it."""
    few = draws[np.linspace(0, len(draws) - 1, DRAWS).round().astype(int)]
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    return np.sum(few < theta, axis=0), (low <= theta) & (theta <= high)


def run_study(study: Study, simulations: int, seed: int, file: Path, on_progress: OnProgress) -> Calibration:
    """Simulate, train and rank, or go on where an earlier call stopped.

    Args:
        study: The study.
        simulations: The number of simulations.
        seed: The seed of the study.
        file: Where results are kept.
        on_progress: Called with the share that is done and what is being done.

    Returns:
        The calibration.

    Raises:
        InputError: The file holds the results of another study.
    """
    model = built(study)
    about = {**study._asdict(), "settings": dict(study.settings), "seed": seed, "draws": DRAWS, "draw_seed": "number"}
    found: dict[str, Any] = {"study": about, "names": names_of(model), "ranks": [], "covered": [], "doubtful": []}
    if file.is_file():
        kept = read_json(file, "a study of calibration")
        if kept.get("study") != about:
            raise InputError(f"{file} holds another study; give another --out, or delete the file")
        found = kept
    settings = {"model": {**study.settings}, "sites": {"expand": "variational", "settle": False}}
    for number in range(len(found["ranks"]), simulations):
        on_progress(number / simulations, f"{study.kind}: simulation {number + 1} of {simulations}")
        theta, clients = simulate(study, model, seed, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the doubts of single runs are counted
            posterior = fit(
                study.kind,
                clients,
                standardise=False,  # theta was drawn for the rows as they are
                settings=settings,
                rounds=study.rounds,
                algorithm__particles=8,
                selection__kind="round_robin",
                seed=number,
            )
            # Weighted draws of a scale are stratified. With one seed for all simulations, the same strata would be
            # kept in each of them, and ranks would not be uniform even if the posterior is exact.
            ranks, covered = rank_in(theta, posterior.draws(using="draws", seed=number))
            trusted = posterior.trusted
        found["ranks"].append(ranks.tolist())
        found["covered"].append(covered.tolist())
        found["doubtful"].append(not trusted)
        if len(found["ranks"]) % EVERY == 0 or number + 1 == simulations:
            write_json(file, found)
    part = slice(0, simulations)
    ranks, covered = np.asarray(found["ranks"][part], int), np.asarray(found["covered"][part], bool)
    return Calibration(tuple(found["names"]), ranks, covered, sum(found["doubtful"][part]))


def table(results: Mapping[str, Calibration]) -> str:
    """Write the results as a Markdown table."""
    lines = [
        "| model | parameter | simulations | 90% intervals contain | p-value of uniform ranks |",
        "|---|---|---|---|---|",
    ]
    for name, found in results.items():
        p_values, shares = found.p_values(), found.coverage()
        for parameter, share, p_value in zip(found.names, shares, p_values, strict=True):
            lines.append(f"| {name} | {parameter} | {len(found.ranks)} | {share:.1%} | {p_value:.3f} |")
    return "\n".join(lines)


def overall(name: str, found: Calibration) -> str:
    """Say in one sentence whether a model is calibrated: coverage, and the smallest p-value times their number."""
    share, least = found.coverage().mean(), min(1.0, float(found.p_values().min()) * len(found.names))
    uniform = "ranks look uniform" if least >= 0.05 else "RANKS ARE NOT UNIFORM"
    doubt = f", {counted(found.doubtful, 'run')} not to be trusted" if found.doubtful else ""
    return (
        f"{name}: 90% intervals contain the truth in {share:.1%} of {len(found.ranks)} simulations; {uniform} "
        f"(p = {least:.3f} over {len(found.names)} parameters{doubt})"
    )
