"""The engine over a network: the round loop's requests to clients, through ``Requests``.

Every reply is checked before the round loop gets it. Its names, shapes and dtypes must be those that the codec writes.
It must also be possible to decode it, and the decoded numbers must be finite. A reply that fails is rejected with a
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedstein.errors import InputError
from fedstein.evaluation.metrics import Sums, implausible_sums, no_sums, sum_shapes
from fedstein.evaluation.metrics.base import add
from fedstein.federation.channel import POINTS, as_jax_arrays, without_held
from fedstein.federation.client import ClientProgram
from fedstein.federation.engine import NOBODY, Assignment, ClientInfo, Trained
from fedstein.federation.secure_round import release_shapes, threshold_of
from fedstein.federation.secure_sum.collector import TooFew
from fedstein.federation.site_table import SiteTable
from fedstein.flower.messages import (
    BROADCAST,
    EVALUATE,
    TRAIN,
    InvalidMessage,
    Shapes,
    digest,
    value,
    with_prefix,
    without_prefix,
)
from fedstein.flower.server.forms import report_form, undecodable, update_form
from fedstein.flower.server.pending import ClientCheck, Exchange, Outcome
from fedstein.flower.server.requests import Requests
from fedstein.flower.server.secure_sums import secure_total
from fedstein.inference.natural import implausible_nodes, implausible_site
from fedstein.inference.points import count_of, implausible_likelihoods, points_of
from fedstein.inference.sites.base import Arrays, State


class FlowerEngine:
    """The round loop's engine over Flower. The site table holds what the server has accepted of each client."""

    remote = True

    def __init__(self, requests: Requests, program: ClientProgram, inputs: int, secure: bool = False):
        """
        Args:
            requests: The requests to clients.
            program: The clients' program; the server uses it to find the shapes of their replies.
            inputs: The number of columns of a client's rows.
            secure: Whether evaluations are secure sums.

        Raises:
            InputError: A codec writes arrays that cannot be sent, or the sums of a metric cannot be secure sums.
        """
        self.requests, self.program = requests, program
        self.secure = secure
        if secure and (odd := [metric.name for metric in program.metrics if metric.merge is not add]):
            raise InputError(f"privacy.sums = 'secure' adds sums up, and {odd[0]!r} merges them in another way")
        self.bad: dict[int, int] = {}  # bad replies of each client since it was last left out
        self.until: dict[int, int] = {}  # the last round that a client is left out of
        self._receipts: dict[int, str] = {}
        self._broadcast: tuple[Arrays, str] | None = None
        self._announced: tuple[int, Arrays, list[int]] | None = None
        self._early: tuple[int, str, dict[int, Arrays]] = (0, "", {})  # round, digest of the broadcast, reports
        self._anticipated: Mapping[int, Assignment] = NOBODY
        self._speculated: dict[int, tuple[Any, Arrays]] = {}  # receipt and update of each client that trained early
        self._faults: dict[int, dict[str, list[int]]] = {}  # by round
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
        (number, known, reports), self._early = self._early, (0, "", {})
        if (number, known) != (round_index, self._broadcast[1]):
            reports = {}
        early, self._anticipated = self._anticipated, NOBODY
        others = [client for client in candidates if client not in reports and client not in early]
        check, form = self._report_check(round_index), self._report_form.on_wire
        timeout, need_one = self.requests.settings.report_timeout, not reports
        found, both = self.requests.exchange(
            Exchange("ask", round_index, others, broadcast, form, timeout, need_one=need_one, check=check),
            self._speculative(round_index, broadcast, early, check, need_one=not others),
        )
        for each in (found, both):
            self._count(round_index, each)
            reports = reports | {client: without_prefix(reply.arrays) for client, reply in each.replies.items()}
        self._speculated = {
            client: (r.head["receipt"], with_prefix(r.arrays, TRAIN)) for client, r in both.replies.items()
        }
        return {client: as_jax_arrays(reports[client]) for client in candidates if client in reports}

    def _speculative(
        self,
        round_index: int,
        broadcast: Arrays,
        early: Mapping[int, Assignment],
        check: ClientCheck,
        need_one: bool,
    ) -> Exchange:
        """Make the request for reports and training in one message, before the clients are drawn.

        Args:
            round_index: The round.
            broadcast: Its encoded broadcast.
            early: The input of training for each of these clients.
            check: Returns what is wrong with a report.
            need_one: Whether no other client is asked for a report.

        Returns:
            The request.
        """
        update_check = partial(undecodable, self.program.wire, "update", round_index, self._update_form)

        def check_both(client: int, arrays: Arrays) -> str:
            return check(client, without_prefix(arrays)) or update_check(client, with_prefix(arrays, TRAIN))

        form = {TRAIN + name: shape for name, shape in self._update_form.on_wire.items()}
        uses = BROADCAST if any(each.cached for each in early.values()) else ""
        return Exchange(
            "ask",
            round_index,
            list(early),
            broadcast,
            {**self._report_form.on_wire, **form},
            self.requests.settings.train_timeout,
            need_one=need_one,
            check=check_both,
            own={client: {TRAIN + name: a for name, a in each.arrays.items()} for client, each in early.items()},
            extra={"train": uses},
        )

    def assign_early(self, assignments: Mapping[int, Assignment]) -> None:
        self._anticipated = assignments

    def trained_early(self, round_index: int, sites: SiteTable) -> dict[int, Trained]:
        found, self._speculated = self._speculated, {}
        sound = {k: (receipt, update) for k, (receipt, update) in found.items() if receipt == digest(update)}
        self._receipts |= {client: receipt for client, (receipt, _) in sound.items()}
        return {client: Trained(as_jax_arrays(update), {}) for client, (_, update) in sound.items()}

    def announce(self, round_index: int, broadcast: Arrays, candidates: Sequence[int]) -> None:
        self._announced = (round_index, broadcast, list(candidates))

    def _report_check(self, round_index: int) -> ClientCheck:
        return partial(undecodable, self.program.wire, "report", round_index, self._report_form)

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
                    raise InvalidMessage("its receipt does not match what it sent")
            except InvalidMessage as error:
                found.rejected[client] = str(error)
                self.requests.note("rejected", round_index, client, kind="train", reason=str(error))
            else:
                self._receipts[client] = reply.head["receipt"]
                self._count(round_index, found)
                return Trained(as_jax_arrays(reply.arrays), {})
        self._count(round_index, found)
        return None

    def train_in_secure_sum(
        self, round_index: int, clients: Sequence[int], assignment: Arrays, sites: SiteTable, threshold: int
    ) -> tuple[Arrays, list[int], int] | None:
        """The noisy sums of a private round, the clients in them, and the threshold; None if too few clients stayed."""
        guard = self.program.guard
        assert guard is not None, "only private runs sum releases"
        self.requests.sites = sites
        asked = [client for client in clients if self.until.get(client, 0) < round_index]
        thresholds = [threshold]

        def least(begun: int) -> int:
            thresholds.append(threshold_of(begun, guard.settings))
            return thresholds[-1]

        shapes = release_shapes(self.program)
        sent = {name: np.asarray(array) for name, array in assignment.items()}
        try:
            sums, inside = secure_total(self.requests, "train", round_index, asked, sent, shapes, least)
        except TooFew as error:
            self.requests.events.note("no sum", number=round_index, reason=str(error))
            return None
        return sums, inside, thresholds[-1]

    def commit(self, round_index: int, clients: Sequence[int]) -> None:
        for client in clients:
            self.requests.receipts[client] = (round_index, self._receipts[client])
        self._receipts.clear()

    def evaluate(self, round_index: int, particles: Any, clients: Sequence[int], sites: SiteTable) -> dict[int, Sums]:
        self.requests.sites = sites
        timeout = self.requests.settings.report_timeout
        asked = [client for client in clients if self.until.get(client, 0) < round_index]  # not those left out
        given = {POINTS: particles}

        def check(client: int, sums: Arrays) -> str:
            return implausible_sums(sums, self.program.metrics)

        number, broadcast, candidates = self._announced or (0, {}, [])
        self._announced = None
        both = [client for client in candidates if client in asked]
        alone = [client for client in asked if client not in both]
        sums, joined = self.requests.exchange(
            Exchange("evaluate", round_index, alone, given, self._sum_shapes, timeout, check=check),
            self._joined(number, broadcast, both, given, check),
        )
        for found in (sums, joined):
            self._count(round_index, found._replace(missing={}))  # the evaluation itself lists the missing clients
        replies = {client: reply.arrays for client, reply in sums.replies.items()}
        replies |= {client: with_prefix(reply.arrays, EVALUATE) for client, reply in joined.replies.items()}
        if both:
            early = {client: without_prefix(reply.arrays) for client, reply in joined.replies.items()}
            self._early = (number, digest(broadcast), early)
        return {client: replies[client] for client in clients if client in replies}

    def _joined(
        self, number: int, broadcast: Arrays, clients: Sequence[int], given: Arrays, check: ClientCheck
    ) -> Exchange:
        """Make the request for the reports of the next round and the evaluation of this one in one message.

        Args:
            number: The next round.
            broadcast: Its encoded broadcast.
            clients: Its candidates.
            given: The particles to evaluate. If the broadcast contains them unchanged, they are not sent twice.
            check: Returns what is wrong with the sums of an evaluation.

        Returns:
            The request.
        """
        report_check = self._report_check(number)

        def check_both(client: int, arrays: Arrays) -> str:
            return check(client, with_prefix(arrays, EVALUATE)) or report_check(client, without_prefix(arrays))

        sums = {EVALUATE + name: form for name, form in self._sum_shapes.items()}
        twice = {EVALUATE + name: array for name, array in without_held(given, broadcast).items()}
        return Exchange(
            "ask",
            number,
            clients,
            {**broadcast, **twice},
            {**self._report_form.on_wire, **sums},
            self.requests.settings.report_timeout,
            check=check_both,
            extra={"evaluate": True},
        )

    def evaluate_in_secure_sum(
        self, round_index: int, particles: Any, clients: Sequence[int], sites: SiteTable
    ) -> tuple[Sums, list[int]] | None:
        """The sums over all clients' held-out rows, and the clients in them; None if each client sends its own sums."""
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
        count = count_of(request)
        shapes = {"log_likelihood": ((count,), "float16"), "median": ((1,), "float64"), "sums": ((2,), "float64")}
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
            known = self._faults.setdefault(round_index, {}).setdefault(kind, [])
            known.extend(client for client in clients if client not in known)
        for client in found.rejected:
            self.bad[client] = self.bad.get(client, 0) + 1
            if self.bad[client] >= self.requests.settings.offences:
                self.bad[client] = 0
                self.until[client] = round_index + self.requests.settings.leave_out
                self.requests.note("left out", round_index, client, until=self.until[client])

    def left_out(self, round_index: int) -> frozenset[int]:
        found = frozenset(client for client, last in self.until.items() if round_index <= last)
        if found:
            self._faults.setdefault(round_index, {})["left_out"] = sorted(found)
        return found

    def faults(self, round_index: int) -> dict[str, Any]:
        return {kind: sorted(clients) for kind, clients in self._faults.pop(round_index, {}).items()}

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
