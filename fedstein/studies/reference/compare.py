"""``compare_with_nuts``: the reference for a posterior in memory, of any model, from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedstein.data.holdout import split_client
from fedstein.data.label_coding import coded
from fedstein.data.scaling import scale_rows
from fedstein.errors import InputError
from fedstein.models import Model
from fedstein.posterior import Posterior
from fedstein.studies.reference.nuts import Sampler, sample
from fedstein.studies.reference.scores import Reference, keep, score_posterior, verdict
from fedstein.studies.reference.target import Pooled, stack_clients

LARGEST = 500  # parameters: beyond it the Hessian and NUTS take too long

Client = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Comparison:
    """A federated posterior against NUTS on the same rows in one place.

    Attributes:
        reference: What NUTS found.
        scores: The distances, as in ``reference.json``.
    """

    reference: Reference
    scores: dict[str, Any]

    @property
    def trusted(self) -> bool:
        """Whether the chains of the reference agree with each other."""
        return self.reference.diagnostics.trusted

    def __str__(self) -> str:
        return verdict(self.scores)


def compare_with_nuts(
    posterior: Posterior,
    clients: Sequence[Client],
    sampler: Sampler | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Comparison:
    """Sample the posterior of all clients' rows in one place with NUTS, and score a federated posterior against it.

    Args:
        posterior: What ``fedstein.fit`` returned.
        clients: The same (x, y) pairs that ``fit`` was given.
        sampler: How long to sample; four chains with 300 + 1000 iterations unless said otherwise.
        on_progress: Called with the share of the work that is done.

    Returns:
        The comparison. ``print`` it for the verdict.

    Raises:
        InputError: The model has too many parameters, or the settings of the sampler are out of bounds.
    """
    chosen = (sampler or Sampler()).check()
    rows = []
    for number, (x, y) in enumerate(clients):
        x, y = np.asarray(x), np.asarray(y)
        if posterior.labels:
            y = coded(y, posterior.labels, f"client {number}")
        if posterior.scaling is not None:
            x, y = scale_rows(x, y, posterior.scaling)
        share = split_client(x, y, posterior.config.evaluate.fraction)
        rows.append((share.x, share.y))
    target = pool(posterior.model, rows, posterior.config.algorithm.temperature)
    chains, checks = sample(target, chosen, on_progress)
    reference = keep(chains, checks)
    scores = {
        "trusted": checks.trusted,
        **score_posterior(target, reference, posterior),
        "nuts": {**chosen._asdict(), **checks._asdict()},
    }
    return Comparison(reference, scores)


def pool(model: Model, clients: Sequence[Client], temperature: float) -> Pooled:
    """Put the rows of clients together.

    Args:
        model: The model.
        clients: Their x and y, before ``Model.prepare``.
        temperature: The temperature alpha of the likelihoods.

    Returns:
        The posterior. Models whose likelihood is that of a whole client keep the clients apart.

    Raises:
        InputError: The model has more than LARGEST parameters.
    """
    if model.dim > LARGEST:
        raise InputError(
            f"the reference needs a model of at most {LARGEST} parameters, {model.name!r} has {model.dim}: NUTS on so "
            "many would take too long; leave the run out"
        )
    prepared = [(model.prepare(np.asarray(x)), np.asarray(y)) for x, y in clients]
    if model.whole_shard:
        x, y, weights = stack_clients(prepared)
        return Pooled(model, x, y, temperature, weights)
    x, y = (np.concatenate(arrays) for arrays in zip(*prepared, strict=True))
    return Pooled(model, x, y, temperature)
