"""The posterior, the result of a run. It gives draws and predictions, and ``load`` reads it from a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.console import counted
from fedstein.data import Scaling
from fedstein.data.encoding import Encoding
from fedstein.data.label_coding import Label, read_labels
from fedstein.errors import InputError
from fedstein.evaluation.metrics.temperature import tempered
from fedstein.evaluation.prediction import mixture_moments
from fedstein.evaluation.predictive import Predictive
from fedstein.files import folder_path
from fedstein.inference.draw_diagnostics import DrawDiagnostics, weights_diagnostics
from fedstein.inference.importance import Weighted
from fedstein.inference.natural import GaussianSite
from fedstein.inference.sampling import OnProgress, PosteriorDraws, Sampler, sample_posterior
from fedstein.inference.sites.gaussian import DRAWS, SiteGaussian
from fedstein.inference.summary import Summary, summarise_draws
from fedstein.models import Model
from fedstein.posterior_checks import check_draws, check_level, check_seed
from fedstein.posterior_tools import PosteriorTools
from fedstein.runs.build import build_model
from fedstein.runs.config import Config, unknown
from fedstein.runs.doubts import doubts_of_run
from fedstein.runs.folder import RunFolder
from fedstein.runs.kept_draws import read_draws, read_sums, read_weighted, write_draws
from fedstein.runs.sections import CUSTOM

SOURCES = ("draws", "weighted", "nuts", "gaussian", "particles")
NO_SITES = (
    "Only full curvature sites give the width of the posterior, and this run has none. Particles lie too close "
    "together to quote intervals from."
)
AT_PARTICLES = (
    "The sites were expanded at the particles. With few rows for the number of parameters, intervals can then be much "
    "too narrow; sites.expand = 'variational' expands them over the posterior."
)
NO_WEIGHTS = (
    "this posterior has no weighted draws: it needs sites__expand='variational' and sites for which the weights are "
    "reliable; use using='nuts'"
)
NO_SUMS = (
    "this posterior has no sums of full sites to draw from: it needs sites__kind='curvature' and "
    "sites__structure='full', and a run folder must be of this version; use using='gaussian' or using='particles'"
)


@dataclass(frozen=True, repr=False)
class Posterior(PosteriorTools):
    """N particles of a model's posterior, and how they came about.

    Attributes:
        model: The model.
        particles: N x d, in the model's own coordinates.
        rounds: The record of each round, as in ``rounds.jsonl``.
        config: The full config of the run.
        gaussian: The Gaussian of prior and sites, from full curvature sites: the posterior with the right width.
        clients: The held-out rows and metrics of each client, if clients evaluated.
        scaling: How rows are scaled before the model sees them; None if they are used as they come.
        sums: The server's sums of full curvature sites: eta (d) and precision (d x d). Draws are made from them.
        features: The names of the features; x0, x1, ... if there are none.
        doubts: Sentences that say why sums and weights cannot be trusted; empty if they can.
        weighted: Draws that the clients' exact likelihoods have weighted (``sites.expand = "variational"``).
        folder: The run folder that this was loaded from. Draws are kept there.
        labels: The label of each class, as it was passed; empty for a regression.
        client_names: The names of the clients.
        encoding: How the columns of DataFrames become features; None if features are the columns.
    """

    model: Model
    particles: np.ndarray
    rounds: list[dict[str, Any]]
    config: Config
    gaussian: SiteGaussian | None = None
    clients: list[dict[str, Any]] | None = None
    scaling: Scaling | None = field(default=None, compare=False)
    sums: GaussianSite | None = field(default=None, compare=False)
    features: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    folder: Path | None = field(default=None, compare=False)
    labels: tuple[Label, ...] = ()
    client_names: tuple[str, ...] = ()
    weighted: Weighted | None = field(default=None, compare=False)
    encoding: Encoding | None = None
    _made: dict[tuple[Sampler, int], PosteriorDraws] = field(default_factory=dict, init=False, compare=False)

    def __repr__(self) -> str:
        n, d = self.particles.shape
        other = ", with a Gaussian" if self.gaussian is not None else ""
        made = self._kept(Sampler(), 0) if self.sums is not None and self.weighted is None else None
        doubtful = self.doubts or (made is not None and not made.trusted)
        warning = "; its draws are not to be trusted, see problems" if doubtful else ""
        if self.sums is not None and not self.refined:
            warning += "; sites expanded at the particles, see summary()"
        head = f"<Posterior of {self.model.name}: {counted(n, 'particle')} of {counted(d, 'parameter')}{other}"
        return f"{head}, {counted(len(self.rounds), 'round')}{warning}>"

    @property
    def refined(self) -> bool:
        """Whether sites were expanded over the posterior by passes, which are not repeated if a client is forgotten."""
        forgot = any(record.get("forgotten") is not None for record in self.rounds)
        return getattr(self.config.sites, "expand", "mean") == "variational" and not forgot

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the d parameters: those of the model if it gives any, else theta[0], theta[1], ..."""
        features = self.features or tuple(f"x{i}" for i in range(self.model.features))
        found = self.model.parameter_names(features) if self.model.parameter_names is not None else ()
        if len(found) != self.model.dim:
            return tuple(f"theta[{i}]" for i in range(self.model.dim))
        for k, label in enumerate(self.labels):
            found = tuple(name.replace(f"[class {k}]", f"[{label}]") for name in found)
        return found

    @property
    def temperature(self) -> float:
        """The calibration temperature T that clients' held-out rows gave (``evaluate.temperature``); 1 without one.

        Class probabilities that ``predict`` averages over the particles are softmax(log p / T).
        """
        if self.config.evaluate.temperature != "fit":
            return 1.0
        known = [record["temperature"] for record in self.rounds if record.get("temperature") is not None]
        return float(known[-1]) if known else 1.0

    @property
    def diagnostics(self) -> DrawDiagnostics | None:
        """The diagnostics of the draws that ``draws()`` returns; None without full sites. Makes the draws."""
        if self.weighted is not None:
            return weights_diagnostics(self.weighted)
        return self.sample().diagnostics if self.sums is not None else None

    @property
    def problems(self) -> list[str]:
        """Sentences that say why intervals from ``draws()`` cannot be trusted; empty if they can. Makes the draws."""
        if self.sums is None:
            return [NO_SITES]
        return list(self.doubts) if self.weighted is not None else [*self.doubts, *self.sample().problems]

    @property
    def trusted(self) -> bool:
        """Whether ``draws()`` represent the posterior: chains that agree, and sites that the likelihoods confirm.

        Makes the draws. ``problems`` says why not.
        """
        return not self.problems

    def sample(
        self, seed: int = 0, sampler: Sampler | None = None, on_progress: OnProgress = lambda share: None
    ) -> PosteriorDraws:
        """Sample the prior times the sites with NUTS, or hand out what was sampled before.

        Args:
            seed: The same seed gives the same draws.
            sampler: How long to sample; four chains with 500 + 1000 iterations unless said otherwise.
            on_progress: Gets the share that is done.

        Returns:
            The draws of each chain, their moments and diagnostics.

        Raises:
            InputError: The posterior has no sums of full sites, or NumPyro is not installed.
        """
        if self.sums is None:
            raise InputError(NO_SUMS)
        check_seed(seed)
        if sampler is not None and not isinstance(sampler, Sampler):
            raise InputError(f"sampler: expected fedstein.inference.sampling.Sampler(...), got {sampler!r}")
        chosen = sampler or Sampler()
        found = self._kept(chosen, seed)
        if found is None:
            start = np.asarray(self.particles, np.float64).mean(axis=0)
            found = sample_posterior(
                self.model, *self.sums, sampler=chosen, seed=seed, start=start, on_progress=on_progress
            )
            self._made[chosen, seed] = found
            if self.folder is not None and (chosen, seed) == (Sampler(), 0):
                write_draws(self.folder, found, chosen, seed)
        return found

    def _kept(self, sampler: Sampler, seed: int) -> PosteriorDraws | None:
        """Draws that were made before, by this object or, with the default settings, by another one in the folder."""
        if (sampler, seed) not in self._made and self.folder is not None and (sampler, seed) == (Sampler(), 0):
            kept = read_draws(self.folder, sampler, seed)
            if kept is not None and kept.draws.shape[-1] == self.model.dim:
                self._made[sampler, seed] = kept
        return self._made.get((sampler, seed))

    def draws(self, n: int | None = None, seed: int = 0, using: str | None = None, units: str = "scaled") -> np.ndarray:
        """Draws from the posterior.

        Args:
            n: The number of draws. By default as many as were weighted, all 4000 of NUTS, 200 of the Gaussian, or every
                particle. There are no more than the particles; NUTS samples longer if more are asked for.
            seed: The same seed gives the same draws.
            using: ``"weighted"`` are draws that the clients' exact likelihoods have weighted, resampled; ``"nuts"``
                samples the prior times the sites, when it is first asked for; ``"gaussian"`` is the site Gaussian,
                ``"particles"`` the particles. By default the first of these that there is. ``"draws"`` is the first of
                the first two.
            units: ``"scaled"`` gives the model's own parameters; if features were standardised, a weight is for one
                standard deviation of its feature. ``"own"`` gives them in the units of the rows as they were passed.

        Returns:
            n x d draws, with columns as in ``names``. ``trusted`` says whether those of NUTS are to be trusted.

        Raises:
            InputError: There are no full sites, no Gaussian, or more draws are asked for than there are particles; or
                the parameters of the model are those of scaled rows and of no others.
        """
        if units != "scaled":
            return self._in_units(units, self.draws(n, seed, using))
        using = self._resolved(using or self._best())
        source = self._source(using)
        check_seed(seed)
        if n is not None:
            check_draws(n)
        if using == "weighted" and self.weighted is not None:
            return self.weighted.resampled(len(self.weighted.draws) if n is None else n, seed)
        if using == "nuts":
            longer = max(Sampler().draws, -(-(n or 0) // Sampler().chains))
            sampled = self.sample(seed, Sampler()._replace(draws=longer)).draws
            mixed = sampled.swapaxes(0, 1).reshape(-1, sampled.shape[-1])  # chains take turns
            return mixed if n is None else mixed[np.linspace(0, len(mixed) - 1, n).round().astype(int)]
        if source is not None:
            return source.draws(DRAWS if n is None else n, seed)
        if n is not None and n > len(self.particles):
            raise InputError(f"expected at most {len(self.particles)} draws, one a particle, got {n}")
        return self.particles[:n]

    def table(self, using: str | None = None, units: str = "scaled") -> Summary:
        """Mean, sd, median and the central 90% interval of each parameter, with R-hat and ESS if NUTS made the draws.

        Args:
            using: As for ``draws``.
            units: As for ``draws``.

        Returns:
            A table: a sequence of rows, each a mapping. It prints as text and has ``to_pandas()``.

        Raises:
            InputError: There is no such posterior.
        """
        using = self._resolved(using or self._best())
        draws, about = self.draws(using=using, units=units), self._about_units(units)
        if using == "weighted":
            return summarise_draws(draws, self.names, using, self.diagnostics, self.doubts, about)
        if using == "nuts":
            note = "\n".join(filter(None, ["" if self.refined else AT_PARTICLES, about]))
            sampled = self.sample()
            problems = [*self.doubts, *sampled.problems]
            return summarise_draws(draws, self.names, using, sampled.diagnostics, problems, note)
        reasons = self.doubts if using == "gaussian" else [NO_SITES]
        return summarise_draws(draws, self.names, using, None, reasons, about)

    def chains(self, using: str | None = None) -> np.ndarray:
        """Draws with an axis for chains, as MCMC diagnostics want them.

        Args:
            using: As for ``draws``.

        Returns:
            Chains x draws x d; what is not from chains is one chain.

        Raises:
            InputError: There is no such posterior.
        """
        if self._resolved(using or self._best()) == "nuts":
            return self.sample().draws
        return self.draws(using=using)[None]

    def interval(self, level: float = 0.9, using: str | None = None, units: str = "scaled") -> np.ndarray:
        """Central intervals of the parameters.

        Args:
            level: The posterior probability of each interval, between 0 and 1.
            using: As for ``draws``.
            units: As for ``draws``.

        Returns:
            d x 2, lower and upper ends.

        Raises:
            InputError: The level is not between 0 and 1, or there is no such posterior.
        """
        check_level(level, "interval is about parameters, not about rows")
        tail = (1 - level) / 2
        return np.quantile(self.draws(using=using, units=units), (tail, 1 - tail), axis=0).T

    def predict(self, x: Any, using: str | None = None, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
        """Predict new rows.

        Args:
            x: Rows x features, in the units of the rows that the run was given: an array, or a DataFrame, whose columns
                go by name.
            using: ``"particles"``, or what to average over draws of: ``"draws"``, ``"weighted"``, ``"nuts"`` or
                ``"gaussian"``, as for ``draws``. By default weighted draws if there are any, else the particles.
            draws: The number of draws, if particles are not used.
            seed: The seed of those draws.

        Returns:
            Rows x classes probabilities; for regression rows x 2, mean and standard deviation.

        Raises:
            InputError: The rows are not rows of the model, or there is no Gaussian.
        """
        using = self._resolved(using or ("weighted" if self.weighted is not None else "particles"))
        self._source(using)
        rows = self._rows(x)
        if len(rows) == 0:
            return np.zeros((0, self.model.classes or 2))
        points = self._points(using, draws, seed)
        out = Predictive(self.model, rows)(jnp.asarray(points, jnp.result_type(float)))
        if self.model.task == "classification":
            sharpened = using == "particles" and self.temperature != 1.0
            return np.exp(tempered(out, self.temperature) if sharpened else out)
        mean, sd = mixture_moments(out)
        if self.scaling is not None:
            mean, sd = mean * self.scaling.target_scale + self.scaling.target_mean, sd * self.scaling.target_scale
        return np.stack([mean, sd], axis=1)

    def _best(self) -> str:
        """Return the name of the available posterior whose widths are most accurate."""
        if self.weighted is not None:
            return "weighted"
        if self.sums is not None:
            return "nuts"
        return "gaussian" if self.gaussian is not None else "particles"

    def _resolved(self, using: str) -> str:
        """Which draws ``"draws"`` means."""
        return using if using != "draws" else "weighted" if self.weighted is not None else "nuts"

    def _source(self, using: str) -> SiteGaussian | None:
        if using not in SOURCES:
            raise InputError(unknown("posterior", using, list(SOURCES)))
        if using == "weighted" and self.weighted is None:
            raise InputError(NO_WEIGHTS)
        if using == "nuts" and self.sums is None:
            raise InputError(NO_SUMS)
        if using == "gaussian" and self.gaussian is None:
            raise InputError(
                "this posterior has no Gaussian: it needs sites__kind='curvature' and sites__structure='full'"
            )
        return self.gaussian if using == "gaussian" else None


def load(path: str | Path, model: Model | None = None) -> Posterior:
    """Load the posterior of a finished run.

    Args:
        path: The run folder.
        model: The model, if it is one of your own: a folder cannot hold it.

    Returns:
        The posterior. It predicts rows in the units of the run's own data.

    Raises:
        InputError: The folder holds no finished run, or it is damaged; or the model is missing.
    """
    folder, config = RunFolder.open(folder_path(path))
    particles, facts = folder.read_posterior(), folder.data_facts()
    if model is None:
        model = build_model(config, len(facts["features"]), facts["classes"], facts["task"])
    elif config.model.kind != CUSTOM:
        raise InputError(f"{path} has the model {config.model.kind!r}, which needs no model=; leave it out")
    if particles.shape[1] != model.dim:
        raise InputError(
            f"{path}: the posterior has {particles.shape[1]} columns, the model {model.dim}; it is damaged"
        )
    weighted = read_weighted(folder.path)
    if weighted is not None and weighted.draws.shape[1] != model.dim:
        raise InputError(f"{path}: weighted.safetensors has other parameters than the model; it is damaged")
    gaussian = folder.read_gaussian() if folder.has_gaussian() else None
    records = [record.to_dict() for record in folder.records()]
    return Posterior(
        model,
        particles,
        records,
        config,
        gaussian,
        scaling=folder.scaling(),
        sums=read_sums(folder.path),
        features=tuple(map(str, facts["features"])),
        doubts=doubts_of_run(folder, config, records),
        folder=folder.path,
        labels=read_labels(facts["labels"], str(facts.get("label_kind", "text"))),
        client_names=folder.client_names(),
        encoding=folder.encoding(),
        clients=folder.read_evaluation(),
        weighted=weighted,
    )
