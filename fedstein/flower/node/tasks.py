"""Flower's tasks in a resident node, which does the work of ``flower-superexec`` and ``flwr-clientapp`` itself.

A SuperNode makes a task of every message and hands it out over its Runtime API. ``TaskRunner`` takes the tasks through
that API, as Flower's own programs do, and has a process of the ``WorkerPool`` compute the answers. It runs only
Fedstein's client app. It neither installs nor imports code that comes with a run.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from logging import ERROR, INFO

import httpx
from flwr.app import Message
from flwr.app.error import Error
from flwr.common.config import get_fab_config
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedstein.errors import FedsteinError
from fedstein.flower.node.client_app import log_refusal
from fedstein.flower.node.worker_pool import WorkerPool
from fedstein.flower.records import arrays_content, from_record, to_record
from fedstein.flower.waits import Alarm

CLIENT_APP = "fedstein.flower.node.client_app:app"
ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})  # calls that must be signed with the secret
LOOK_EVERY = 5.0  # seconds between two looks for tasks that were not announced
HEARTBEAT_EVERY = 10.0  # seconds; a SuperNode gives up a task after 30 s without one
AFTER_FAILURE = 1.0  # seconds before the next try to reach the SuperNode


class OtherApp(FedsteinError):
    """The run names a client app other than Fedstein's."""


class TaskRunner:
    """Takes tasks from the SuperNode in this process and answers them, one after another."""

    def __init__(self, address: str, secret: bytes, pool: WorkerPool, alarm: Alarm, seconds: float) -> None:
        """
        Args:
            address: The SuperNode's Runtime API.
            secret: The secret without which the SuperNode hands out no tasks.
            pool: The processes that compute.
            alarm: The alarm that is set when a message has come.
            seconds: The most that one answer may take; a message's own lifetime may be shorter.
        """
        self.address, self.pool, self.alarm, self.seconds = address, pool, alarm, seconds
        self._client = self._connect(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE))
        self._ours: set[str] = set()  # hashes of apps that are known to be Fedstein's
        self._computing = threading.Lock()

    def start(self) -> None:
        """Answer tasks in a thread of its own, until the process ends."""
        threading.Thread(target=self._run, name="fedstein-tasks", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.alarm.arrived.wait(LOOK_EVERY)
            self.alarm.arrived.clear()
            try:
                request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
                while (found := self._client.AcquireTask(request)).HasField("task") and found.token:
                    # In threads: a task whose run has ended waits for ever, and must not delay the others.
                    threading.Thread(target=self._do, args=(found.token,), name="fedstein-task", daemon=True).start()
            except Exception as error:  # a task that cannot be taken must not end the node
                log(ERROR, "fedstein: a task could not be taken: %s: %s", type(error).__name__, error)
                time.sleep(AFTER_FAILURE)

    def _do(self, token: str) -> None:
        """Answer the task of this token."""
        client = self._connect(RuntimeTokenHttpInterceptor(token))
        done = threading.Event()
        threading.Thread(target=send_heartbeats, args=(client, done), daemon=True).start()
        context, status, details = None, SubStatus.FAILED, "the task could not be read"
        try:
            message, context, _, fab = pull_task_input(client)
            try:
                self._refuse_other(fab.hash_str, fab.content)
                reply = self._answer(message, dict(context.node_config))
                status, details = SubStatus.COMPLETED, ""
            except Exception as error:
                details = f"{type(error).__name__}: {error}" if not isinstance(error, FedsteinError) else str(error)
                log(ERROR, "fedstein: %s", details)
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details), reply_to=message)
            push_message(client, reply, context)
            self.alarm.reply_made()
        except Exception as error:  # its run has ended, or the SuperNode is gone
            log(ERROR, "fedstein: a task could not be finished: %s: %s", type(error).__name__, error)
        finally:
            with suppress(Exception):  # the loss of the reply has already been reported
                push_task_output(client, context, status, details)
            done.set()
            client.close()

    def _answer(self, message: Message, node_config: dict[str, object]) -> Message:
        request = from_record(message.content)
        phase = f" {request.head['phase']}" if "phase" in request.head else ""
        what = f"{request.head.get('kind')}{phase}, round {request.head.get('round')}"
        log(INFO, "fedstein: %s", what)
        began = time.monotonic()
        with self._computing:
            reply = self.pool.ask(request, node_config, min(self.seconds, message.metadata.ttl))
        log_refusal(reply)
        log(INFO, "fedstein: %s: answered in %.3f s", what, time.monotonic() - began)
        return Message(to_record(reply.head, arrays_content(reply.arrays)), reply_to=message)

    def _refuse_other(self, digest: str, content: bytes) -> None:
        if digest in self._ours:
            return
        components = get_fab_config(content)["tool"]["flwr"]["app"]["components"]
        if components.get("clientapp") != CLIENT_APP:
            raise OtherApp(
                f"this node runs {CLIENT_APP}, the run wants {components.get('clientapp')}; for another client app "
                "start the node with --isolation subprocess"
            )
        self._ours.add(digest)

    def _connect(self, signer: SuperExecAuthHttpInterceptor | RuntimeTokenHttpInterceptor) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,  # on this machine, in this process
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), signer],
            retry_invoker=make_simple_http_retry_invoker(),
        )


def send_heartbeats(client: RuntimeHttpClient, done: threading.Event) -> None:
    """Tell the SuperNode that a task is being worked on, until it is done.

    Flower's own sender ends the process when a task is no longer wanted. A resident node continues, and Flower drops
    the answer.
    """
    while not done.wait(HEARTBEAT_EVERY):
        with suppress(httpx.HTTPError):
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
