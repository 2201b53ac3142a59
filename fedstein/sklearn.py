"""Estimators for scikit-learn: ``FederatedClassifier`` and ``FederatedRegressor``.

They follow scikit-learn's conventions, so they work in pipelines, in ``GridSearchCV`` and in ``cross_val_score``. Who
owns each row is metadata: ``fit(X, y, clients=...)``. With metadata routing, ``set_fit_request(clients=True)`` passes
it through pipelines and searches. Without it there is one client.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedstein.api import fit
from fedstein.data.frames import no_value
from fedstein.data.scaling import Scaling, pooled, unscaled
from fedstein.errors import InputError
from fedstein.models import MODELS, Model
from fedstein.posterior import Posterior

__all__ = ["FederatedClassifier", "FederatedRegressor"]
FLOATS = [np.float64, np.float32]


class FederatedEstimator(BaseEstimator):
    """The code that both estimators share. Their own docstrings describe attributes and parameters."""

    task = ""

    def __init__(
        self,
        model: str | Model = "auto",
        *,
        rounds: int = 60,
        particles: int = 20,
        selection: str | None = None,
        settings: Mapping[str, Any] | None = None,
        standardize: bool = True,
        using: str = "particles",
        random_state: Any = 0,
    ):
        self.model = model
        self.rounds = rounds
        self.particles = particles
        self.selection = selection
        self.settings = settings
        self.standardize = standardize
        self.using = using
        self.random_state = random_state

    def _train(self, X: np.ndarray, y: np.ndarray, clients: Any, model: str | Model) -> None:
        """Train on validated rows; y are class indices or targets."""
        refuse_other_task(model, self.task)
        names, owner = owners(clients, len(X))
        regression = self.task == "regression"
        counts = model_target(model) == "count"
        scaling = unscaled(X.shape[1])
        if self.standardize:
            scaling = pooled(X, y if regression and not counts else None)
        precision = jnp.result_type(float)
        rows = ((X - scaling.mean) / scaling.scale).astype(precision)
        targets = (y - scaling.target_mean) / scaling.target_scale if regression else y
        parts = {name: (rows[owner == k], targets[owner == k]) for k, name in enumerate(names)}
        if not isinstance(self.settings or {}, Mapping):
            raise ValueError(f"settings: expected a dict of sections, got {self.settings!r}")
        settings = {**(self.settings or {})}
        settings["algorithm"] = {"particles": self.particles, **settings.get("algorithm", {})}
        if self.selection is not None:
            settings["selection"] = {"kind": self.selection, **settings.get("selection", {})}
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        posterior = checked(fit, model, parts, settings=settings, rounds=self.rounds, seed=int(seed))
        self._keep(posterior, scaling)

    def _keep(self, posterior: Posterior, scaling: Scaling) -> None:
        features = tuple(map(str, getattr(self, "feature_names_in_", ())))
        self.posterior_ = replace(posterior, scaling=scaling, features=features)
        self.n_iter_ = len(posterior.rounds)

    def _predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        with warnings.catch_warnings():  # scikit-learn has compared the names of the columns
            warnings.filterwarnings("ignore", "x is an array, whose columns are taken by position", UserWarning)
            return np.asarray(checked(self.posterior_.predict, X, using=self.using), np.float64)


class FederatedClassifier(ClassifierMixin, FederatedEstimator):
    """A classifier that learns from several clients, one of whom trains in each round.

    Args:
        model: A model of ``fedstein list`` or of your own. ``"auto"``: logistic regression for two classes, softmax
            regression for more.
        rounds: The number of rounds.
        particles: The number of particles.
        selection: The selection scheme; None leaves it to Fedstein.
        settings: Further settings of the config file, nested: ``{"sites": {"expand": "variational"}}``.
        standardize: Whether features are scaled by their mean and sd over all training rows, as ``fedstein run`` does.
        using: What predictions are averaged over: ``"particles"``, ``"gaussian"`` or ``"nuts"``.
        random_state: The seed.

    Attributes:
        posterior_: The ``fedstein.Posterior``. It takes rows in the units of X.
        classes_: The labels.
        n_iter_: The number of rounds.
    """

    task = "classification"

    def fit(self, X: Any, y: Any, clients: Any = None) -> FederatedClassifier:
        """Train on the rows of all clients.

        Args:
            X: Rows x features.
            y: The label of each row.
            clients: The owner of each row, of any type; None: one client owns them all.

        Returns:
            The estimator.

        Raises:
            ValueError: Rows, labels, clients or settings are wrong.
        """
        X, y = validate_data(self, X, y, dtype=FLOATS)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"expected at least two classes, got one class ({self.classes_[0]!r})")
        model = self.model
        if isinstance(model, str) and model == "auto":
            model = "blr" if len(self.classes_) == 2 else "softmax"
        self._train(X, codes, clients, model)
        labels = tuple(self.classes_.tolist())
        self.posterior_ = replace(self.posterior_, labels=labels)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class.

        Args:
            X: Rows x features.

        Returns:
            Rows x classes, in the order of ``classes_``.
        """
        found = self._predict(X)
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row.

        Args:
            X: Rows x features.

        Returns:
            One label a row.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


class FederatedRegressor(RegressorMixin, FederatedEstimator):
    """A regressor that learns from several clients, one of whom trains in each round.

    Args:
        model: A model of ``fedstein list`` or of your own. ``"auto"``: linear regression.
        rounds: The number of rounds.
        particles: The number of particles.
        selection: The selection scheme; None leaves it to Fedstein.
        settings: Further settings of the config file, nested: ``{"sites": {"expand": "variational"}}``.
        standardize: Whether features and targets are scaled by their mean and sd over all training rows. Counts are
            not scaled.
        using: What predictions are averaged over: ``"particles"``, ``"gaussian"`` or ``"nuts"``.
        random_state: The seed.

    Attributes:
        posterior_: The ``fedstein.Posterior``. It takes rows in the units of X.
        n_iter_: The number of rounds.
    """

    task = "regression"

    def fit(self, X: Any, y: Any, clients: Any = None) -> FederatedRegressor:
        """Train on the rows of all clients.

        Args:
            X: Rows x features.
            y: The target of each row.
            clients: The owner of each row, of any type; None: one client owns them all.

        Returns:
            The estimator.

        Raises:
            ValueError: Rows, targets, clients or settings are wrong.
        """
        X, y = validate_data(self, X, y, dtype=FLOATS, y_numeric=True)
        model = self.model
        if isinstance(model, str) and model == "auto":
            model = "linear"
        self._train(X, np.asarray(y, np.float64), clients, model)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean of each row.

        Args:
            X: Rows x features.
            return_std: Whether to return the predictive standard deviation too.

        Returns:
            One number a row, or a pair of such arrays.
        """
        mean, sd = self._predict(X).T
        return (mean, sd) if return_std else mean


def owners(clients: Any, rows: int) -> tuple[list[str], np.ndarray]:
    """The names of the clients in sorted order, and the number of each row's client.

    Args:
        clients: The owner of each row; None: one owner.
        rows: The number of rows.

    Raises:
        ValueError: There is not one owner a row, or an owner is missing.
    """
    if clients is None:
        return ["client-0"], np.zeros(rows, int)
    found = column_or_1d(np.asarray(clients))
    if len(found) != rows:
        raise ValueError(f"expected {rows} clients, one for each row, got {len(found)}")
    if missing := [row for row, name in enumerate(found.tolist()) if no_value(name)]:
        raise ValueError(
            f"expected a client for every row, got none (None or NaN) for {len(missing)} rows, the first is "
            f"{missing[0]}"
        )
    distinct, codes = np.unique(found.astype(str) if found.dtype.kind == "O" else found, return_inverse=True)
    return [str(name) for name in distinct.tolist()], codes


def refuse_other_task(model: str | Model, task: str) -> None:
    """Refuse a model for the other task.

    Raises:
        ValueError: The model is for the other one.
    """
    known = isinstance(model, Model) or model in MODELS
    found = model.task if isinstance(model, Model) else MODELS[model].task if known else task
    if found != task:
        name = model.name if isinstance(model, Model) else model
        suitable = ", ".join(kind for kind, each in MODELS.items() if each.task == task)
        raise ValueError(f"the model {name!r} is for {found}, this estimator for {task}; choose one of: {suitable}")


def model_target(model: str | Model) -> str:
    """Whether the targets of a regression are real numbers or counts."""
    if isinstance(model, Model):
        return model.target
    return MODELS[model].traits.target if model in MODELS else "real"


def checked(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function of Fedstein. What it refuses is a ``ValueError``, as scikit-learn's users expect."""
    try:
        return function(*arguments, **options)
    except InputError as error:
        raise ValueError(str(error)) from None
