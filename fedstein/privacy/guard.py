"""The check that every message of a private run passes: a client sends only accounted releases and nothing else.

``Guard.release`` adds the planned noise to a client's sums and records the release in the client's ledger before it
returns. ``refuse`` raises an error for every other message of the protocol (``GATES`` names them all).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.errors import InputError
from fedstein.privacy.accounting import plan_of
from fedstein.privacy.ledger import Ledger, Release
from fedstein.privacy.mechanism import CURVATURE, GRADIENT, MOMENTS, release
from fedstein.privacy.settings import PrivacySettings
from fedstein.privacy.shared_noise import SharedNoise

# Every message that a client can be asked for, and how a private run treats it.
PROTECTED, OPEN, MASKED = "protected", "open", "masked"
GATES: dict[str, str] = {
    "hello": OPEN,  # name and place; the number of rows only if it is public, and no digest of them
    "train": PROTECTED,
    "scale": "scaling",
    "columns": "columns",
    "sums": "second moments for sites.structure = 'eigen' are not protected; use sites.structure = 'full'",
    "ask": "reports are not protected: the server chooses by the noisy sites that it has, and asks nobody",
    "evaluate": "counts over held-out rows are not protected; evaluate at the server (evaluate.where = 'server')",
    "expand": "expansions are not protected; set sites.expand = 'mean'",
    "nodes": "expansions are not protected; set sites.expand = 'mean'",
    "secure": MASKED,  # allowed if the config has secure sums; the summands are then checked by their own kind
    "weigh": "log-likelihoods at draws are not protected; set sites.expand = 'mean'",
}
PUBLIC_MEANS = {
    "scaling": "means and scales of this client's columns are not protected; set data.standardize = false, or declare "
    "them public (privacy.public = ['scaling'])",
    "columns": "counts of this client's columns are not protected; give data.categories and data.fill, or declare them "
    "public (privacy.public = ['columns'])",
}


class Unprotected(InputError):
    """A message that a private run does not have."""


def refuse(kind: str, settings: PrivacySettings) -> None:
    """Refuse a message that a private run does not have.

    Args:
        kind: The kind of the message, a key of ``GATES``. Any other kind is refused.
        settings: The settings of ``[privacy]``.

    Raises:
        Unprotected: The message is neither protected nor declared public; the text says what to do.
    """
    if not settings.on:
        return
    gate = GATES.get(kind, f"nothing is known of requests for {kind!r}")
    secure = settings.sums == "secure"
    if gate == MASKED:
        if secure:
            return
        gate = "masked sums without noise are not protected; set privacy.sums = 'secure', or ask for plain releases"
    if kind == "train" and secure:
        raise Unprotected(
            "privacy.sums = 'secure': what one client releases is not protected by its own share of the noise; it is "
            "sent in masked sums alone"
        )
    if gate in (PROTECTED, OPEN) or gate in settings.public:
        return
    raise Unprotected(f"privacy.kind = {settings.kind!r}: {PUBLIC_MEANS.get(gate, gate)}")


class Guard:
    """Adds the planned noise to what clients send, and keeps their ledgers."""

    def __init__(
        self,
        settings: PrivacySettings,
        secret: bytes | None = None,
        *,
        folder: Path | None = None,
        run: str = "in process",
        budget: tuple[float, float] | None = None,
        single: bool = False,
    ):
        """
        Args:
            settings: The settings of ``[privacy]``.
            secret: The secret that noise is generated from. Without it nothing can be released.
            folder: Where ledgers are kept; None keeps them in memory.
            run: The id of the run, for the ledger.
            budget: epsilon and delta that the operator has set; None if the budget of the first run applies.
            single: Whether the folder belongs to one client, as on a node.
        """
        self.settings, self.plan = settings, plan_of(settings)
        self.secret, self.folder, self.run, self.budget, self.single = secret, folder, run, budget, single
        self._ledgers: dict[int, Ledger] = {}

    def keep_in(self, folder: Path) -> None:
        """Keep ledgers in a folder, unless the settings name one already.

        Args:
            folder: The folder.
        """
        if self.folder is None:
            self.folder = folder
            self._ledgers.clear()

    def ledger(self, client: int) -> Ledger:
        """The ledger of a client."""
        if client not in self._ledgers:
            epsilon, delta = self.budget or (self.settings.epsilon, self.settings.delta)
            name = "ledger.jsonl" if self.single else f"client-{client}.jsonl"
            path = None if self.folder is None else self.folder / name
            self._ledgers[client] = Ledger(
                path, epsilon, delta, fixed=self.budget is not None, protects=self.settings.kind
            )
        return self._ledgers[client]

    def release(
        self,
        client: int,
        visit: int,
        exact: Mapping[str, np.ndarray],
        sensitivity: Mapping[str, float],
        shared: SharedNoise | None = None,
    ) -> dict[str, np.ndarray]:
        """Add noise to the sums of one visit. The client's ledger has the release before this returns.

        Args:
            client: The client's id.
            visit: How often the client has released before.
            exact: The sums: ``gradient``, and ``moments`` or ``curvature`` at the first visit.
            sensitivity: How much a neighbour's sums can differ: by one row, or by all rows of the client.
            shared: The secure sum to which this client adds its share of the noise; None if the release is sent by
                itself.

        Returns:
            The sums with noise.

        Raises:
            BudgetSpent: The client's budget does not allow it.
            Unprotected: There is no secret that noise could come from, or a share of the noise would be sent alone.
        """
        if (shared is not None) != (self.settings.sums == "secure"):
            raise Unprotected("a share of the noise protects a secure sum, and nothing else is sent with it")
        if self.secret is None:
            raise Unprotected("a private release needs a secret that its noise comes from, and none was given here")
        if visit >= self.plan.visits:
            raise Unprotected(f"privacy.visits = {self.plan.visits}: this client has released that often already")
        noisy, written = {}, []
        for name, values in exact.items():
            multiplier = {
                GRADIENT: self.plan.gradient,
                MOMENTS: self.plan.moments,
                CURVATURE: self.plan.moments,
            }[name]
            scale = multiplier * sensitivity[name]
            run = self.run
            if shared is not None:  # another sum is another release, with noise of its own
                scale, run = scale * shared.share(self.settings.colluders), f"{self.run} in {shared.session}"
            label = label_of(run, client, visit, name, scale, values)
            noisy[name] = release(name, values, scale, self.secret, label)
            identity = hashlib.sha256(self.secret + label.encode()).hexdigest()[:32]
            written.append(Release(identity, name, multiplier, self.run, client, visit))
        self.ledger(client).charge(written)
        return noisy


def label_of(run: str, client: int, visit: int, name: str, scale: float, values: Any) -> str:
    """Return a label of everything that determines a release. A different sum has a different label and other noise."""
    exact = hashlib.sha256(np.ascontiguousarray(values, np.float64).tobytes()).hexdigest()
    return json.dumps([run, client, visit, name, float(scale).hex(), exact])
