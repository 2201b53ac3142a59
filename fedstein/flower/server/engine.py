"""The engine over a network: the round loop's requests to clients, through ``Requests``.

A reply is checked before the round loop sees it. Its names, shapes and dtypes must be those that the codec writes; then
it is decoded once to see whether that works and gives finite numbers. A reply that fails is rejected with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedstein.data.shard import Shard
from fedstein.errors import InputError
from fedstein.evaluation.metrics import Sums, implausible_sums, no_sums, sum_shapes
from fedstein.evaluation.metrics.base import add
from fedstein.federation.channel import EVERYBODY, Wire, placed
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import ClientInfo, Trained
from fedstein.federation.packing import PACKED, largest
from fedstein.federation.secure_sum.collector import TooFew
from fedstein.federation.site_table import SiteTable
from fedstein.flower.messages import DTYPES, InvalidMessage, Shapes, check_arrays, digest, shapes_of, value
from fedstein.flower.server.requests import Outcome, Requests
from fedstein.flower.server.secure_sums import secure_total
from fedstein.inference.methods.base import Training
from fedstein.inference.natural import implausible_nodes, implausible_site
from fedstein.inference.points import count_of, implausible_likelihoods, points_of
from fedstein.inference.sites.base import Arrays, State
from fedstein.inference.target import SharedTarget, Target


class FlowerEngine:
    """The round loop's engine over Flower. The site table holds what the server has accepted of each client."""

    remote = True

    def __init__(self, requests: Requests, program: ClientProgram, inputs: int, secure: bool = False):
        """
        Args:
            requests: How messages reach clients.
            program: What clients compute; the server uses it for the shapes of their replies.
            inputs: The number of columns of a client's rows.
            secure: Whether evaluations are secure sums.

        Raises:
            InputError: A codec writes arrays that cannot travel, or sums of a metric cannot be secure.
        """
        self.requests, self.program = requests, program
        self.secure = secure
        if secure and (odd := [metric.name for metric in program.metrics if metric.merge is not add]):
            raise InputError(f"privacy.sums = 'secure' adds sums up, and {odd[0]!r} merges them in another way")
        self.bad: dict[int, int] = {}  # bad replies of each client since it was last left out
        self.until: dict[int, int] = {}  # the last round that a client is left out of
        self._receipts: dict[int, str] = {}
        self._broadcast: tuple[Arrays, str] | None = None
        self._faults: dict[str, list[int]] = {}
        first = program.first_state
        self._template = {name: first[name] for name in program.method.shared}
        requests.restorable = set(first) <= set(self._template)
        self._report_form = report_form(program, inputs)
        self._update_form = update_form(program, inputs)
        self._sum_shapes = sum_shapes(program.model.task, program.metrics)

    @property
    def clients(self) -> Sequence[ClientInfo]:
        return self.requests.membership.infos

    @property
    def state_template(self) -> State:
        return self._template

    def ask(
        self, round_index: int, broadcast: Arrays, candidates: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        self.requests.sites = sites
        self._broadcast = (broadcast, digest(broadcast))
        timeout = self.requests.settings.report_timeout
        found = self.requests.request(
            "ask",
            round_index,
            candidates,
            broadcast,
            self._report_form.on_wire,
            timeout,
            need_one=True,
            check=partial(undecodable, self.program.wire, "report", round_index, self._report_form),
        )
        self._count(round_index, found)
        return {client: placed(found.replies[client].arrays) for client in candidates if client in found.replies}

    def train(
        self, round_index: int, client: int, assignment: Arrays, cached: Arrays, sites: SiteTable
    ) -> Trained | None:
        self.requests.sites = sites
        receipt = ""
        if cached:
            known, receipt = self._broadcast or ({}, "")
            if known is not cached:
                receipt = digest(cached)
        found = self.requests.request(
            "train",
            round_index,
            [client],
            assignment,
            self._update_form.on_wire,
            self.requests.settings.train_timeout,
            cached=cached,
            cached_receipt=receipt,
            check=partial(undecodable, self.program.wire, "update", round_index, self._update_form),
        )
        if client in found.replies:
            reply = found.replies[client]
            try:
                if value(reply.head, "receipt", str) != digest(reply.arrays):
                    raise InvalidMessage("its receipt is not that of what it sent")
            except InvalidMessage as error:
                found.rejected[client] = str(error)
                self.requests.note("rejected", round_index, client, kind="train", reason=str(error))
            else:
                self._receipts[client] = reply.head["receipt"]
                self._count(round_index, found)
                return Trained(placed(reply.arrays), {})
        self._count(round_index, found)
        return None

    def commit(self, round_index: int, clients: Sequence[int]) -> None:
        for client in clients:
            self.requests.receipts[client] = (round_index, self._receipts[client])
        self._receipts.clear()

    def evaluate(self, round_index: int, particles: Any, clients: Sequence[int], sites: SiteTable) -> dict[int, Sums]:
        self.requests.sites = sites
        timeout = self.requests.settings.report_timeout
        asked = [client for client in clients if self.until.get(client, 0) < round_index]  # not those left out
        found = self.requests.request(
            "evaluate",
            round_index,
            asked,
            {"particles": particles},
            self._sum_shapes,
            timeout,
            check=lambda client, sums: implausible_sums(sums, self.program.metrics),
        )
        self._count(round_index, found._replace(missing={}))  # who is missing is with the evaluation itself
        return {client: found.replies[client].arrays for client in clients if client in found.replies}

    def evaluate_together(
        self, round_index: int, particles: Any, clients: Sequence[int], sites: SiteTable
    ) -> tuple[Sums, list[int]] | None:
        """The sums over all clients' held-out rows and who is in them; None where each client sends its own."""
        if not self.secure:
            return None
        self.requests.sites = sites
        asked = [client for client in clients if self.until.get(client, 0) < round_index]
        given = {"particles": np.asarray(particles)}
        try:
            sums, inside = secure_total(self.requests, "evaluate", round_index, asked, given, self._sum_shapes)
        except TooFew as error:
            self.requests.events.note("no evaluation", number=round_index, reason=str(error))
            return no_sums(self.program.model.task, self.program.metrics), []
        if problem := implausible_sums(sums, self.program.metrics):
            self.requests.events.note("no evaluation", number=round_index, reason=problem)
            return no_sums(self.program.model.task, self.program.metrics), []
        return sums, inside

    def expand(self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable) -> dict[int, Arrays]:
        dim = self.program.model.dim
        shapes = {"gradient": ((dim,), "float32"), "precision": ((dim * (dim + 1) // 2,), "float32")}
        return self._after_rounds("expand", round_index, request, shapes, clients, sites, implausible_site)

    def expand_at_nodes(
        self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        count, dim = np.shape(request["means"])
        shapes = {
            "gradient": ((count, dim), "float32"),
            "precision": ((count, dim * (dim + 1) // 2), "float32"),
            "value": ((count,), "float64"),
        }
        return self._after_rounds("nodes", round_index, request, shapes, clients, sites, implausible_nodes)

    def weigh(self, round_index: int, request: Arrays, clients: Sequence[int], sites: SiteTable) -> dict[int, Arrays]:
        shapes = {"log_likelihood": ((count_of(request),), "float32"), "sums": ((2,), "float64")}
        points = points_of(self.program.model, request)
        return self._after_rounds(
            "weigh", round_index, request, shapes, clients, sites, lambda found: implausible_likelihoods(found, points)
        )

    def _after_rounds(
        self,
        kind: str,
        round_index: int,
        request: Arrays,
        shapes: Shapes,
        clients: Sequence[int],
        sites: SiteTable,
        implausible: Callable[[Arrays], str],
    ) -> dict[int, Arrays]:
        """Ask the clients that are not left out; those that do not answer are missing from the result."""
        self.requests.sites = sites
        asked = [client for client in clients if self.until.get(client, 0) < round_index]
        timeout = self.requests.settings.report_timeout
        found = self.requests.request(
            kind, round_index, asked, request, shapes, timeout, check=lambda client, arrays: implausible(arrays)
        )
        self._count(round_index, found._replace(missing={}))
        return {client: found.replies[client].arrays for client in clients if client in found.replies}

    def _count(self, round_index: int, found: Outcome) -> None:
        for kind, clients in (("missing", found.missing), ("rejected", found.rejected)):
            known = self._faults.setdefault(kind, [])
            known.extend(client for client in clients if client not in known)
        for client in found.rejected:
            self.bad[client] = self.bad.get(client, 0) + 1
            if self.bad[client] >= self.requests.settings.offences:
                self.bad[client] = 0
                self.until[client] = round_index + self.requests.settings.leave_out
                self.requests.note("left out", round_index, client, until=self.until[client])

    def left_out(self, round_index: int) -> frozenset[int]:
        self._faults = {}
        found = frozenset(client for client, last in self.until.items() if round_index <= last)
        if found:
            self._faults["left_out"] = sorted(found)
        return found

    def faults(self, round_index: int) -> dict[str, Any]:
        return {kind: sorted(clients) for kind, clients in self._faults.items()}

    def memory(self) -> dict[str, Any]:
        return {
            "run": self.requests.run,
            "receipts": {str(k): list(entry) for k, entry in self.requests.receipts.items()},
            "bad": {str(k): count for k, count in self.bad.items()},
            "until": {str(k): last for k, last in self.until.items()},
            **self.requests.membership.memory(),
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.requests.receipts = {int(k): (int(n), str(r)) for k, (n, r) in memory.get("receipts", {}).items()}
        self.bad = {int(k): int(count) for k, count in memory.get("bad", {}).items()}
        self.until = {int(k): int(last) for k, last in memory.get("until", {}).items()}


class Form(NamedTuple):
    """The required form of a reply of one kind: as it is sent, as the codec wrote it, and as the server decodes it.

    The first two differ where messages are packed.
    """

    on_wire: Shapes
    encoded: Shapes
    decoded: Shapes


def undecodable(wire: Wire, kind: str, round_index: int, form: Form, client: int, arrays: Arrays) -> str:
    """Find out why the server cannot compute from a reply that has the right form on the wire.

    Args:
        wire: The codec of the run.
        kind: ``"report"`` or ``"update"``.
        round_index: The round, from 1.
        form: What the reply must look like.
        client: The client that sent the reply.
        arrays: The reply as it travelled.

    Returns:
        The reason, or an empty text where there is none.
    """
    try:
        with np.errstate(all="ignore"):
            encoded = wire.unpack(placed(arrays))
            if wire.packing != "none":  # else the shapes of what the codec wrote are checked already
                check_arrays(encoded, form.encoded, lambda right: "")
            received = wire.decode_unpacked(kind, round_index, client, encoded)
            check_arrays({name: np.asarray(array) for name, array in received.items()}, form.decoded)
    except InvalidMessage as error:
        return str(error)
    except Exception as error:  # a codec may be a plug-in, and these bytes may be anything
        return f"the codec {wire.codecs[kind].name!r} cannot decode its {kind}: {type(error).__name__}: {error!s:.200}"
    return ""


def _example(program: ClientProgram, inputs: int) -> Shard:
    """A small shard such as the model gets, for its shapes."""
    labels = np.zeros(8, np.int32 if program.model.task == "classification" else np.float32)
    return program.shard(np.zeros((8, inputs), np.float32), labels)


def report_form(program: ClientProgram, inputs: int) -> Form:
    """Return the required form of a report. It is found by tracing the report function, without running it.

    Args:
        program: What clients compute.
        inputs: The number of columns of a client's rows.

    Returns:
        The form of a report; an empty one where the scheme asks for none.

    Raises:
        InputError: The codec writes arrays that cannot travel over Flower.
    """
    scheme, method = program.scheme, program.method
    if scheme.report is None or method.protection is not None:  # in a private run the server works indicators out
        return Form({}, {}, {})
    broadcast = method.broadcast(program.first_server, scheme.uses)
    key = jax.random.key(0)

    def report(received: Arrays, state: State, shard: Shard) -> Arrays:
        assert scheme.report is not None
        shared = SharedTarget(method.spec, received)
        target = Target(method.spec, shared.terms(scheme.uses), key, state, shard, 0)
        return scheme.report(target, scheme.prepare(shared))

    return form_of(program, "report", jax.eval_shape(report, broadcast, program.first_state, _example(program, inputs)))


def update_form(program: ClientProgram, inputs: int) -> Form:
    """Return the required form of an update.

    Args:
        program: What clients compute.
        inputs: The number of columns of a client's rows.

    Returns:
        The form of an update.

    Raises:
        InputError: The codec writes arrays that cannot travel over Flower.
    """
    method = program.method
    if method.protection is not None:
        return form_of(program, "update", program.first_state)
    assigned = method.assign(program.first_server, None)
    key, scale = jax.random.key(0), jnp.asarray(program.schedule(1))

    def train(received: Arrays, state: State, shard: Shard) -> Arrays:
        return method.train(Training(key, received, state, shard, True, scale))[0]

    return form_of(program, "update", jax.eval_shape(train, assigned, program.first_state, _example(program, inputs)))


def form_of(program: ClientProgram, kind: str, shapes: Mapping[str, Any]) -> Form:
    """The form of a message whose arrays have these shapes and dtypes before they are encoded.

    Encoded and decoded shapes depend on nothing but these, as the contract of a codec says; so zeros will do.
    """
    zeros = {name: np.zeros(array.shape, array.dtype) for name, array in shapes.items()}
    wire = program.wire
    sent = wire.encode(kind, 0, EVERYBODY, zeros)
    encoded = wire.unpack(sent)
    for name, array in encoded.items():
        if str(array.dtype) not in DTYPES:
            raise InputError(
                f"channel.codec = {wire.codecs[kind].name!r} writes {name!r} as {array.dtype}, which does not "
                f"travel over Flower; expected one of: {', '.join(DTYPES)}"
            )
    packed = {PACKED: ((-largest(encoded),), "uint8")}
    on_wire = shapes_of(encoded) if wire.packing == "none" else packed
    return Form(on_wire, shapes_of(encoded), shapes_of(wire.decode(kind, 0, EVERYBODY, sent)))
