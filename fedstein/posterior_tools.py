"""Methods of ``Posterior`` for other tools: class labels, entropies, pandas, ArviZ, notebooks, pickle, run folders."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.data import Scaling, scaled
from fedstein.data.encoding import Encoding
from fedstein.data.frame_encoding import FrameOptions
from fedstein.data.frames import is_frame
from fedstein.data.label_coding import Label, coded
from fedstein.data.passed import Columns, as_rows, features_of, refuse_masked
from fedstein.errors import InputError
from fedstein.evaluation.arviz_export import arviz_data
from fedstein.evaluation.by_draw import class_log_probabilities, gaussian_parts, log_likelihoods, predictive_draws
from fedstein.evaluation.entropy import Entropy, class_entropy, gaussian_entropy
from fedstein.files import folder_path
from fedstein.inference.natural import GaussianSite
from fedstein.inference.sites.gaussian import DRAWS, SiteGaussian
from fedstein.inference.summary import Summary
from fedstein.models import Model
from fedstein.models.input_shapes import flat_rows
from fedstein.models.pickling import packed_model, unpacked_model
from fedstein.models.units import in_own_units
from fedstein.posterior_checks import check_draws, check_level, check_seed
from fedstein.runs.build import build_model
from fedstein.runs.config import Config, unknown
from fedstein.runs.posterior_html import html_of
from fedstein.runs.saved_posterior import save_posterior
from fedstein.runs.sections import CUSTOM

UNITS = ("scaled", "own")
IN_OWN_UNITS = "In the units of the data; log xi is that of the weights of standardised features."
IN_SCALED_UNITS = (
    "Features were standardised: a weight is for one standard deviation of its feature. units='own' (--units own) "
    "gives the units of the data."
)
PREDICTIVE = "y"  # the name of the target for ArviZ, if it has no name


class PosteriorTools:
    """The part of ``Posterior`` that other tools need; it uses its draws and predictions."""

    model: Model
    particles: np.ndarray
    rounds: list[dict[str, Any]]
    config: Config
    gaussian: SiteGaussian | None
    scaling: Scaling | None
    sums: GaussianSite | None
    features: tuple[str, ...]
    labels: tuple[Label, ...]
    client_names: tuple[str, ...]
    encoding: Encoding | None
    folder: Path | None
    doubts: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        raise NotImplementedError

    def draws(self, n: int | None = None, seed: int = 0, using: str | None = None, units: str = "scaled") -> np.ndarray:
        """n x d draws."""
        raise NotImplementedError

    def predict(self, x: Any) -> np.ndarray:
        """The predictive distribution of rows."""
        raise NotImplementedError

    def table(self, using: str | None = None, units: str = "scaled") -> Summary:
        """Numbers to quote."""
        raise NotImplementedError

    def chains(self, using: str | None = None) -> np.ndarray:
        """Draws by chain."""
        raise NotImplementedError

    def predict_proba(self, x: Any, **options: Any) -> np.ndarray:
        """The probability of each class; for classification ``predict`` is the same.

        Args:
            x: As for ``predict``.
            **options: As for ``predict``: ``using``, ``draws``, ``seed``.

        Returns:
            Rows x classes; the columns are in the order of ``labels``.

        Raises:
            InputError: The model is a regression, or the rows are not rows of the model.
        """
        if self.model.task != "classification":
            raise InputError(f"the model {self.model.name!r} is a regression and has no classes; use predict")
        return self.predict(x, **options)

    def predict_class(self, x: Any, **options: Any) -> np.ndarray:
        """The most probable label of each row.

        Args:
            x: As for ``predict``.
            **options: As for ``predict``: ``using``, ``draws``, ``seed``.

        Returns:
            One label a row, of the type that was passed to ``fit``; text for a run on a file.

        Raises:
            InputError: The model is a regression, or the rows are not rows of the model.
        """
        best = self.predict_proba(x, **options).argmax(axis=1)
        return np.array(self.labels or range(self.model.classes))[best]

    def predict_interval(
        self, x: Any, level: float = 0.9, using: str | None = None, draws: int = 4000, seed: int = 0
    ) -> np.ndarray:
        """Central intervals of new targets of a regression: noise and uncertainty of theta together.

        Args:
            x: As for ``predict``.
            level: The predictive probability of each interval, between 0 and 1.
            using: As for ``predict``.
            draws: The number of draws of the target for each row, about.
            seed: The same seed gives the same intervals.

        Returns:
            Rows x 2, lower and upper ends, from draws of the target.

        Raises:
            InputError: The model is a classification, or says nothing of the target but its moments.
        """
        if self.model.task == "classification":
            raise InputError(f"the model {self.model.name!r} has classes; their probabilities are predict_proba")
        check_level(level, "")
        check_draws(draws)
        points = self._points(using, DRAWS, seed)
        repeated = np.tile(points, (max(1, draws // len(points)), 1))
        found = predictive_draws(self.model, self._rows(x), repeated, seed)
        if found is None:
            raise InputError(
                f"the model {self.model.name!r} gives mean and sd of a target and not its distribution; give it a "
                "sampler (sample=...), or declare likelihood='gaussian' if it is one"
            )
        tail = (1 - level) / 2
        return np.quantile(self._unscaled(found), (tail, 1 - tail), axis=0).T

    def entropy(self, x: Any, using: str | None = None, draws: int = DRAWS, seed: int = 0) -> Entropy:
        """How uncertain predictions are, and why.

        Args:
            x: As for ``predict``.
            using: As for ``predict``.
            draws: The number of draws, if particles are not used.
            seed: Their seed.

        Returns:
            ``total``, ``aleatoric`` (noise) and ``epistemic`` (theta is not known) entropy of each row in nats;
            total = aleatoric + epistemic. For a regression they are differential entropies.

        Raises:
            InputError: The model is a regression whose noise is no Gaussian.
        """
        rows, points = self._rows(x), self._points(using, draws, seed)
        if self.model.task == "classification":
            return class_entropy(class_log_probabilities(self.model, rows, points))
        if self.model.family != "gaussian":
            raise InputError(f"entropy is for classifications and Gaussian noise; {self.model.name!r} is neither")
        found = gaussian_entropy(*gaussian_parts(self.model, rows, points))
        shift = np.log(self.scaling.target_scale) if self.scaling is not None else 0.0
        return Entropy(found.total + shift, found.aleatoric + shift, found.epistemic)

    def client_effect(
        self, x: Any, y: Any = None, using: str | None = None, draws: int = DRAWS, seed: int = 0
    ) -> tuple[float, float]:
        """Compute the effect of one client from its rows, for a model with an intercept or a variable of each client.

        It is computed where the rows are and is part of no message.

        Args:
            x: All rows of one client, as for ``predict``.
            y: Their targets. If x is a DataFrame with the target column, y is that column.
            using: As for ``predict``.
            draws: The number of draws, if particles are not used.
            seed: Their seed.

        Returns:
            Mean and standard deviation of the effect, over the draws too.

        Raises:
            InputError: The model has no such effect, or rows or targets do not fit.
        """
        if self.model.client_effect is None:
            raise InputError(f"the model {self.model.name!r} has no effect of a client's own")
        if y is None and is_frame(x) and self.columns.target in map(str, x.columns):
            y = np.asarray(x[self.columns.target].to_numpy())
        if y is None:
            raise InputError("client_effect needs the targets y of the client's rows")
        rows = self._rows(x)
        targets, floating = self._targets(y, len(rows))[0], jnp.result_type(float)
        blocks = self.model.split(jnp.asarray(self._points(using, draws, seed), floating))
        label = jnp.int32 if self.model.task == "classification" else floating
        inputs, weights = jnp.asarray(self.model.prepare(rows), floating), jnp.ones(len(rows), floating)
        mean, sd = map(np.asarray, self.model.client_effect(blocks, inputs, jnp.asarray(targets, label), weights))
        scale = self.scaling.target_scale if self.scaling is not None and self.model.task == "regression" else 1.0
        return float(scale * mean.mean()), float(scale * np.sqrt(np.mean(sd**2) + mean.var()))

    def summary(self, using: str | None = None, units: str = "scaled") -> Any:
        """Mean, sd, median and the central 90% interval of each parameter, with R-hat and ESS.

        Args:
            using: As for ``draws``.
            units: ``"scaled"`` or ``"own"``, as for ``draws``.

        Returns:
            A pandas DataFrame with the names of the parameters as index; its ``attrs`` have ``using``, ``problems`` and
            ``note``. If there are problems, a warning says so. Without pandas, what ``table`` returns.

        Raises:
            InputError: There is no such posterior.
        """
        found = self.table(using, units)
        try:
            frame = found.to_pandas()
        except InputError:
            return found
        frame.attrs.update(using=found.using, problems=found.problems, note=found.note)
        if found.problems:  # a DataFrame shows numbers alone
            warnings.warn(f"intervals of summary() are not to be trusted: {' '.join(found.problems)}", stacklevel=2)
        return frame

    def to_arviz(self, x: Any = None, y: Any = None, using: str | None = None, seed: int = 0) -> Any:
        """The posterior as ArviZ has it.

        Args:
            x: Rows; with them there is a group ``posterior_predictive``.
            y: Their targets; with them there are ``observed_data`` and ``log_likelihood``, which ``arviz.loo`` needs.
                If x is a DataFrame with the target column, y is that column.
            using: As for ``draws``.
            seed: The seed of the posterior predictive draws.

        Returns:
            ``arviz.InferenceData``, or a ``DataTree`` with ArviZ 1. The variable ``theta`` has the dimension
            ``parameter``, with the names of the parameters; a model from NumPyro has its own variables instead, on
            their own scales. Classes are indices into ``labels``, which are in the
            attributes. Groups that the model does not give are left out.

        Raises:
            InputError: ArviZ is not installed, or rows or targets do not fit.
        """
        check_seed(seed)
        chains = np.asarray(self.chains(using), np.float64)
        target = self.columns.target or PREDICTIVE
        groups: dict[str, dict[str, np.ndarray]] = {"posterior": {"theta": chains}}
        coords: dict[str, Sequence[Any]] = {"parameter": self.names}
        dims = {"theta": ["parameter"]}
        if self.model.constrain is not None:  # the user's own variables, under their own names
            own = self.model.constrain(chains.reshape(-1, chains.shape[-1]))
            groups["posterior"] = {name: each.reshape(*chains.shape[:2], *each.shape[1:]) for name, each in own.items()}
            coords, dims = {}, {}
        if y is None and is_frame(x) and self.columns.target in map(str, x.columns):
            y = np.asarray(x[self.columns.target].to_numpy())
        if y is not None and x is None:
            raise InputError("to_arviz: y needs the rows x that it belongs to")
        if x is not None:
            rows, points = self._rows(x), chains.reshape(-1, chains.shape[-1])
            shape = (*chains.shape[:2], len(rows))
            coords["row"], dims[target] = range(len(rows)), ["row"]
            found = predictive_draws(self.model, rows, points, seed)
            if found is not None:
                groups["posterior_predictive"] = {target: self._unscaled(found).reshape(shape)}
            if y is not None:
                observed, raw = self._targets(y, len(rows))
                groups["observed_data"] = {target: raw}
                densities = log_likelihoods(self.model, rows, observed, points)
                if densities is not None:
                    wide = self.scaling.target_scale if self.scaling is not None else 1.0
                    groups["log_likelihood"] = {target: (densities - np.log(wide)).reshape(shape)}
        attrs = {
            "inference_library": "fedstein",
            "model": self.model.name,
            "labels": [str(each) for each in self.labels],
        }
        return arviz_data(groups, coords, dims, attrs)

    def save(self, path: str | Path) -> Path:
        """Write the posterior into a new folder, which ``fedstein.load`` reads and the command line reports on.

        Args:
            path: A new or empty folder.

        Returns:
            The folder. It has no rows and no checkpoint.

        Raises:
            InputError: The folder holds something, or cannot be written to.
        """
        return save_posterior(folder_path(path), self)

    @property
    def columns(self) -> Columns:
        """The names of the features, which DataFrames must have, and of target and client, which they may have."""
        data = self.config.data
        names = self.encoding.names if self.encoding is not None else self.features
        options = FrameOptions(features=data.features, drop=data.drop)
        return Columns(names, data.target or "", data.client or "", self.encoding, options)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __getstate__(self) -> dict[str, Any]:
        state = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        state["model"] = packed_model(self.model, self.config.model.kind == CUSTOM)
        return {**state, "particles": np.asarray(self.particles)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        packed = state["model"]
        model = unpacked_model(packed, lambda *size: build_model(state["config"], *size))
        for name, value in {**state, "model": model}.items():
            object.__setattr__(self, name, value)

    @property
    def standardised(self) -> bool:
        """Whether features or targets were scaled before the model saw them."""
        found = self.scaling
        if found is None:
            return False
        return bool(np.any(found.scale != 1) or np.any(found.mean != 0) or found.target_scale != 1)

    def _in_units(self, units: str, theta: np.ndarray) -> np.ndarray:
        """Parameters in the units of the rows as they were passed."""
        if units not in UNITS:
            raise InputError(unknown("units", units, list(UNITS)))
        if not self.standardised or self.scaling is None:
            return theta
        found = in_own_units(self.model, theta, *self.scaling)
        if found is None:
            raise InputError(
                f"the parameters of model {self.model.name!r} cannot be given in the units of the rows, only for "
                "standardised rows: use units='scaled', or fit with standardise=False"
            )
        return found

    def _about_units(self, units: str) -> str:
        """Return a sentence about the units of a table; it is empty if rows were not standardised."""
        if not self.standardised:
            return ""
        return IN_OWN_UNITS if units == "own" else IN_SCALED_UNITS

    def _rows(self, x: Any) -> np.ndarray:
        """Rows as the model takes them."""
        x, precision = flat_rows(self.model, x, "x"), np.dtype(jnp.result_type(float))
        passed = self.config.data.name == "file" and not self.config.data.path  # rows passed to ``fit`` are cast first
        if is_frame(x):  # others are scaled in float64, so that large numbers keep their differences
            wide = np.float64 if self.scaling is not None and not passed else precision
            x = features_of(x, self.columns, "x", wide, extra=True)
        elif passed and self.columns.features not in ((), tuple(f"x{i}" for i in range(len(self.columns.features)))):
            warnings.warn(
                "x is an array, whose columns are taken by position, but the rows that the run was given have names: "
                f"{', '.join(self.columns.features)}; pass a DataFrame with these columns",
                UserWarning,
                stacklevel=3,
            )
        refuse_masked(x, "x")
        numeric = np.ndim(x) == 2 and np.asarray(x).dtype.kind in "biuf"
        if self.scaling is not None and numeric and np.shape(x)[1] == len(self.scaling.mean):
            x = scaled(np.asarray(x), self.scaling.mean, self.scaling.scale, precision if passed else np.float32)
        return as_rows(x, "x", precision, self.model.features)

    def _points(self, using: str | None, draws: int, seed: int) -> np.ndarray:
        """The points whose predictions ``predict`` averages."""
        check_draws(draws)
        check_seed(seed)
        using = using or ("weighted" if getattr(self, "weighted", None) is not None else "particles")
        return self.particles if using == "particles" else self.draws(draws, seed, using)

    def _unscaled(self, y: np.ndarray) -> np.ndarray:
        """Targets in the units of the run's data."""
        if self.scaling is None or self.model.task == "classification":
            return y
        return y * self.scaling.target_scale + self.scaling.target_mean

    def _targets(self, y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Targets as the model takes them, and as ArviZ shows them."""
        y = np.asarray(y)
        if y.shape != (rows,):
            raise InputError(f"expected {rows} targets, one a row, got shape {y.shape}")
        if self.model.task == "classification":
            found = coded(y, self.labels or tuple(range(self.model.classes)), "y")
            return found, found
        if y.dtype.kind not in "biuf":
            raise InputError(f"expected numbers as targets, got {y.dtype}; this is a regression")
        real = y.astype(np.float64)
        if self.scaling is None:
            return real, real
        return (real - self.scaling.target_mean) / self.scaling.target_scale, real
