"""The process that computes for a resident node: what ends it ends one request, with a reason, and not the node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomli_w
from flower_runs import BLR, settings

from fedstein.cli import main
from fedstein.errors import InputError
from fedstein.flower import waits
from fedstein.flower.messages import FORMAT, OK, REFUSED, Envelope
from fedstein.flower.node import tasks
from fedstein.flower.node.worker import Worker, WorkerFailed
from fedstein.flower.node.worker_pool import WorkerPool, setting_of
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset

MODEL = """
import os, signal, time
import jax.numpy as jnp
import numpy as np
from fedstein.models import ModelKind
from fedstein.models.blr import BlrSettings

def build(features, classes, settings):
    what = os.environ.get("TROUBLE", "")
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(600)
    if what == "memory":
        kept = np.ones(400_000_000)
        time.sleep(600)
    raise ValueError("a mistake in the model")

troubled = ModelKind("troubled", "In trouble.", "classification", BlrSettings, build, classes=2)
"""


def hello(raw: dict[str, Any] | None = None, **engine: Any) -> Envelope:
    """A greeting of a server whose run has this config."""
    raw = {**(raw or settings(BLR)), "engine": {"kind": "flower", "threads": 1, **engine}}
    config, _ = resolve(raw, facts_of(load_dataset(raw)))
    head = {"format": FORMAT, "run": "r1", "kind": "hello", "round": 0, "client": 0}
    return Envelope({**head, "config": tomli_w.dumps(config.to_dict())}, {})


def node(folder: Path, **more: Any) -> dict[str, Any]:
    return {"partition-id": 0, "state-dir": str(folder / "state"), **more}


def hello_with_trouble(trouble: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A greeting whose model is a plug-in that makes trouble of the given kind."""
    (folder / "trouble_model.py").write_text(MODEL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TROUBLE", trouble)
    request = hello()
    config = str(request.head["config"]).replace('kind = "blr"', 'kind = "trouble_model:troubled"')
    return request._replace(head={**request.head, "config": config})


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


def test_one_process_answers_request_after_request(worker: Worker, tmp_path: Path):
    first = worker.ask(hello(), node(tmp_path), 120)
    assert (first.head["status"], first.head["plays"]) == (OK, 0)
    process = worker._process.pid
    again = worker.ask(hello(), node(tmp_path), 120)
    assert again == first
    assert worker._process.pid == process


def test_a_request_that_is_refused_says_why_and_the_process_stays(worker: Worker, tmp_path: Path):
    wrong = worker.ask(hello()._replace(arrays={"x": np.zeros(2)}), node(tmp_path, **{"partition-id": 9}), 120)
    assert wrong.head["status"] == REFUSED
    assert "client 9" in wrong.head["reason"]
    with pytest.raises(WorkerFailed, match="state-dir"):
        worker.ask(hello(), {"partition-id": 0}, 120)
    assert worker.ask(hello(), node(tmp_path), 120).head["status"] == OK


def test_a_node_in_a_trial_opens_no_path_that_a_server_names(worker: Worker, tmp_path: Path):
    table = tmp_path / "rows.csv"
    table.write_text("x,site,y\n" + "".join(f"{i / 3},{'ab'[i % 2]},{i // 2 % 2}\n" for i in range(12)))
    raw = {"data": {"name": "file", "path": str(table), "client": "site", "target": "y"}, "rounds": 2}
    reply = worker.ask(hello(raw), node(tmp_path), 120)
    assert reply.head["status"] == REFUSED
    assert "opens no path that a server names" in reply.head["reason"]


def test_a_process_that_is_killed_is_named_and_the_next_request_gets_a_new_one(tmp_path: Path):
    pool = WorkerPool()
    try:
        assert pool.ask(hello(), node(tmp_path), 120).head["status"] == OK
        (made,) = pool._workers.values()
        os.kill(made._process.pid, signal.SIGSTOP)
        threading.Timer(0.3, lambda: os.kill(made._process.pid, signal.SIGKILL)).start()
        with pytest.raises(WorkerFailed, match="SIGKILL"):
            pool.ask(hello(), node(tmp_path), 120)
        assert pool.ask(hello(), node(tmp_path), 120).head["status"] == OK
    finally:
        pool.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "seconds", "memory", "said"),
    [
        ("crash", 120.0, 0.0, "SIGSEGV"),
        ("hang", 10.0, 0.0, "longer than 10 s"),
        ("memory", 120.0, 1.5, "more than 1.5 GiB"),
    ],
)
def test_a_model_that_crashes_hangs_or_takes_all_memory_ends_its_request_alone(
    trouble: str, seconds: float, memory: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    request = hello_with_trouble(trouble, tmp_path, monkeypatch)
    pool = WorkerPool(memory)
    try:
        with pytest.raises(WorkerFailed, match=said):
            pool.ask(request, node(tmp_path, plugins="trouble_model"), seconds)
        monkeypatch.setenv("TROUBLE", "")
        assert pool.ask(hello(), node(tmp_path), 120).head["status"] == OK
    finally:
        pool.close()


@pytest.mark.slow
def test_a_mistake_in_a_model_is_a_refusal_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    request = hello_with_trouble("mistake", tmp_path, monkeypatch)
    pool = WorkerPool(0.0)
    try:
        reply = pool.ask(request, node(tmp_path, plugins="trouble_model"), 120)
        assert reply.head["status"] == REFUSED
        assert "trouble_model:troubled" in reply.head["reason"]
        assert "a mistake in the model" in reply.head["reason"]
    finally:
        pool.close()


def test_runs_with_other_threads_or_precision_get_a_process_of_their_own():
    single, double = (str(hello(precision=name).head["config"]) for name in ("float32", "float64"))
    assert setting_of(single) != setting_of(double)
    assert setting_of(single) == setting_of(str(hello(settings(BLR, rounds=7)).head["config"]))
    assert setting_of("not [toml") == setting_of("")


def test_a_node_looks_often_while_a_run_is_on_and_rarely_when_nobody_asks(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    alarm = waits.Alarm()
    assert alarm.pause() == waits.SHORTEST
    now[0] += 5.0
    assert alarm.pause() == pytest.approx(0.5)
    now[0] += 3600.0
    assert alarm.pause() == waits.LONGEST
    alarm.message_came()
    assert alarm.arrived.is_set()
    assert alarm.pause() == waits.SHORTEST
    alarm.looked(0.2)
    assert alarm.pause() == pytest.approx(0.8), "a link that is slow to answer is asked less often"
    alarm.looked(9.0)
    assert alarm.pause() == waits.LONGEST


def test_a_task_of_a_run_that_has_ended_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch):
    """Its message never arrives, and Flower waits for it for minutes."""
    started, released, ends = [], threading.Event(), threading.Event()

    class Client:
        def AcquireTask(self, request: Any) -> Any:
            token = ["orphan", "good", ""][len(started)] if len(started) < 3 else ""
            started.append(token)
            return SimpleNamespace(HasField=lambda name: bool(token), token=token)

    def take(runner: tasks.TaskRunner, token: str) -> None:
        if token == "orphan":
            ends.wait(30)
        else:
            released.set()

    runner = object.__new__(tasks.TaskRunner)
    runner.alarm, runner._client = waits.Alarm(), Client()
    monkeypatch.setattr(tasks.TaskRunner, "_do", take)
    runner.start()
    runner.alarm.message_came()
    assert released.wait(10)
    ends.set()


def test_a_reply_ends_the_wait_for_it():
    alarm = waits.Alarm()
    began = time.monotonic()
    threading.Timer(0.05, alarm.reply_made).start()
    alarm.sleep(0.9)
    assert time.monotonic() - began < 0.8
    assert not alarm.answered.is_set()


def test_another_version_of_flower_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    waits.require_tested_flower()
    monkeypatch.setattr(waits.metadata, "version", lambda name: "1.43.0")
    with pytest.raises(InputError, match=r"Flower 1\.41, found 1\.43\.0; use --isolation subprocess"):
        waits.require_tested_flower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "either --root-certificates FILE or --insecure"),
        (("--insecure",), "either data="),
        (("--insecure", "--data", "none.csv"), "the columns of data that a server may use"),
        (("--insecure", "--data", "none.csv", "--target", "y"), "target='y' and features=''"),
        (("--insecure", "--data", "none.csv", "--target", "y", "--features", "*"), "found none at none.csv"),
        (("--insecure", "--data", "none.csv", "--policy", "none.toml"), "none.toml cannot be read"),
        (("--insecure", "--data", "a.csv", "--policy", "b.toml", "--target", "y"), "write target into the policy file"),
        (("--insecure", "--partition-id", "0", "--features", "a"), "target and features belong to data"),
        (("--insecure", "--partition-id", "0", "--isolation", "thread"), "resident or subprocess"),
    ],
)
def test_mistakes_are_found_before_the_node_starts(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        main(["node", "127.0.0.1:9", "--state-dir", str(tmp_path), *words])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_the_process_ends_when_its_node_does():
    code = (
        "import sys, time\n"
        "from fedstein.flower.node.worker import Worker\n"
        "print(Worker()._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    end = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < end
        time.sleep(0.05)
