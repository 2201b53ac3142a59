"""The contract of a method: the state and messages of the server, the client's training, and the server's update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from jax import Array
from pydantic import Field

from fedstein.data.shard import Shard
from fedstein.errors import InputError
from fedstein.inference.sites.base import Arrays, Own, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model
from fedstein.settings import Positive, PositiveFloat, Settings

Accepted = Mapping[int, Own]  # what the server last accepted of each client: the arrays that ``Method.shared`` names
OnBlock = Callable[[int, float], None]  # steps taken, posterior standard deviations still to go


class Training(NamedTuple):
    """The input of one call of ``Method.train`` on a client."""

    key: Array
    received: Arrays  # what the server sent: the arrays of ``Method.assign``
    state: State
    shard: Shard
    use_all: bool  # whether the shard is small enough to be used whole; static under compilation
    scale: Array  # the factor on the step size in this round


class Conclusion(NamedTuple):
    """The result of a method: what it computes from the server's state after the last round."""

    server: Arrays  # the state to predict with
    gaussian: Any = None  # a ``SiteGaussian``, if the sites are full
    refused: str | None = None  # why there is no Gaussian although the sites are full
    settled: Any = None  # the result of settling, if the particles settled
    sums: Any = None  # a ``GaussianSite``: the server's sums, if the sites are full
    doubt: str | None = None  # why the sums are not those of a posterior, if they are not


class Protection(NamedTuple):
    """How clients answer in a private run: sums over rows that noise is added to, instead of training.

    Attributes:
        sums: What was received, the client's state, its rows and targets on the host -> named sums, before noise. They
            never leave the client.
        finish: The sums with noise, what was received, the state -> the new state, which is also the update.
        sensitivities: How much one row can change each sum.
        target: The server's state, what a client has released -> the client's target as the server knows it, in the
            form that schemes take. None if nothing can be known of it.
        apply_sum: The server's state, the round, what clients received, the noisy sums over clients of a round, these
            clients, and the variance of the noise over that of a single release -> the new state. Where there is one,
            clients have no state, and only their sum is known. None if each client's release is.
    """

    sums: Callable[[Arrays, Own, Any, Any], Mapping[str, Any]]
    finish: Callable[[Mapping[str, Any], Arrays, Own], Arrays]
    sensitivities: Mapping[str, float]
    target: Callable[[Arrays, Own], Any] | None = None
    apply_sum: Callable[[Arrays, int, Arrays, Mapping[str, Any], Sequence[int], float], Arrays] | None = None


class Method(NamedTuple):
    """One federated method, as pure functions with its settings closed over.

    The server's state is the method's own: named arrays that nothing outside the method reads. Particles, natural
    parameters, chains and weights are all possible.

    Attributes:
        name: The value of ``algorithm.kind``.
        spec: What defines a client's target: model, site, temperature and kernel.
        init: Key -> the server's state before round 1.
        client_state: The server's first state -> the state of a client that has never trained.
        broadcast: The server's state, the quantities that the scheme uses -> what candidates need for their reports.
            ``"particles"`` in it, N x d, are the points at which clients evaluate their targets.
        assign: The server's state, what was accepted of the client (or None) -> what the client needs to train.
        train: Runs on the client, compiled: ``Training`` -> the update to send, and the client's private state.
        apply: The server's state, what is accepted of every client, updates by client, step scale -> the new state.
        posterior: The server's state -> N x d points whose predictions are averaged.
        shared: The arrays of an update that the server remembers, and the client as part of its state.
        sequential: Whether each client of a round starts from what the one before has handed on; else all start alike.
        row_gradients: Rows of the client that trains -> {"train", "site"}: rows x particles differentiated.
        conclude: The server's state after the last round, a progress callback or None -> ``Conclusion``. A callback
            asks for settling whatever the settings say. None if nothing is left to do.
        protection: How clients answer in a private run; None: what they send is not protected.
        weigh: The server's state, an update, a factor -> the update with its step times the factor; None where
            ``apply`` does not average updates by rows.
    """

    name: str
    spec: TargetSpec
    init: Callable[[Array], Arrays]
    client_state: Callable[[Arrays], State]
    broadcast: Callable[[Arrays, tuple[str, ...]], Arrays]
    assign: Callable[[Arrays, Own | None], Arrays]
    train: Callable[[Training], tuple[Arrays, State]]
    apply: Callable[[Arrays, Accepted, Mapping[int, Arrays], Any], Arrays]
    posterior: Callable[[Arrays], Any]
    shared: tuple[str, ...]
    sequential: bool
    row_gradients: Callable[[int], dict[str, int]]
    conclude: Callable[[Arrays, OnBlock | None], Conclusion] | None = None
    protection: Protection | None = None
    weigh: Callable[[Arrays, Arrays, float], Arrays] | None = None


class MethodSettings(Settings):
    """The keys of ``[algorithm]`` that every method has."""

    kind: str
    particles: int = Field(20, ge=1, le=10**6, description="N, the number of particles.")
    local_steps: Positive = Field(10, description="L, the steps that a client takes in a round.")
    step_size: PositiveFloat = Field(0.01, description="Step size of the optimiser.")
    batch_size: Positive = Field(100, description="Rows of a step; a client with no more rows than that uses them all.")
    temperature: PositiveFloat = Field(1.0, description="alpha in p_k = exp(-L_k / alpha); the prior is not tempered.")
    schedule: Literal["constant", "cosine"] = Field(
        "cosine",
        description="How the step size changes over the rounds of a run; the cosine ends at a fiftieth of it.",
    )


class ClientCountSettings(MethodSettings):
    """The key of methods whose formulas need the number of clients."""

    clients: Positive | None = Field(
        None, description="K, the clients that take part; the partition's number by default."
    )

    @property
    def client_count(self) -> int:
        """K.

        Raises:
            InputError: It is not set, and the method is built without the table of defaults.
        """
        if self.clients is None:
            raise InputError(f"algorithm.kind = {self.kind!r} needs algorithm.clients, the number of clients; set it")
        return self.clients


class PointSettings(MethodSettings):
    """The keys of methods that train networks by SGD and hold no prior."""

    particles: int = Field(1, ge=1, le=10**6, description="Networks that are trained side by side.")
    step_size: PositiveFloat = Field(0.5, description="Step size of stochastic gradient descent on the mean loss.")


class SvgdSettings(MethodSettings):
    """The keys that every method which moves particles by SVGD has."""

    epsilon: PositiveFloat = Field(1e-6, description="Guard against division by zero in the optimiser.")
    distill_steps: Positive | None = Field(
        None, description="L', the steps that refit local particles (sites.kind = 'particles')."
    )
    kernel: str = Field("rbf", description="The kernel of SVGD, KSD and HIP.")


class MethodKind(NamedTuple):
    """A method that a config can name.

    Attributes:
        name: The value of ``algorithm.kind``.
        about: One line that says what the method is.
        settings: The settings class, a subclass of ``MethodSettings``.
        build: Makes the method from the model, the site and the settings.
        sites: The kind of site that the method has by default.
        uses_sites: Whether it works with sites that keep a state. If not, it works with ``sites.kind = "none"`` alone.
        answers_reports: Whether clients can report on its target, so that every scheme works. If not, only schemes
            that ask nobody do.
        answers_tilted: Whether the method has a prior and a tilted target, which KSD reports on.
        scheme: The selection scheme that the method has by default; empty if the table of defaults decides.
        full_participation: Whether all clients train in a round unless ``selection.per_round`` says otherwise.
        pooled: Whether one client holds the rows of all clients.
        averages: Whether updates are averaged by rows, so that a scheme can weigh their steps (``Method.weigh``).
        least_particles: The smallest number of particles that makes sense.
        leaves_sums: Whether a run with full sites ends with their sums over clients (``Conclusion.sums``), from which
            draws are made.
    """

    name: str
    about: str
    settings: type[MethodSettings]
    build: Callable[[Model, Site, Any], Method]
    sites: str = "curvature"
    uses_sites: bool = True
    answers_reports: bool = True
    answers_tilted: bool = True
    scheme: str = ""
    full_participation: bool = False
    pooled: bool = False
    averages: bool = False
    least_particles: int = 2
    leaves_sums: bool = False
