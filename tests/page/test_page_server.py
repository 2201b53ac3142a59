"""The server of the live page without a browser: who is let in, what it answers, and its token."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedstein.errors import InputError
from fedstein.report.follow import FollowedRun
from fedstein.report.hub import RunHub
from fedstein.report.serve import COOKIE, build_app, kept_token, serve

TOKEN = "t" * 40
Answer = tuple[int, dict[str, str], bytes]


def get(
    app: Any, path: str, query: str = "", host: str = "127.0.0.1:8017", cookie: str = ""
) -> tuple[int, dict, bytes]:
    """One request, without a network."""

    async def ask() -> Answer:
        headers = [(b"host", host.encode()), (b"cookie", cookie.encode())]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": ""}
        scope |= {"query_string": query.encode(), "headers": headers, "scheme": "http", "http_version": "1.1"}
        sent: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict) -> None:
            sent.append(message)

        await app(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, body

    with ThreadPoolExecutor(1) as thread:  # browser tests may have left an event loop in this one
        return thread.submit(asyncio.run, ask()).result()


def test_only_the_token_opens_the_page(tmp_path: Path) -> None:
    app = build_app(tmp_path, TOKEN)
    assert get(app, "/")[0] == 403
    assert get(app, "/", "token=wrong")[0] == 403
    assert get(app, "/api/runs")[0] == 403
    assert get(app, "/static/page.js")[0] == 403
    status, headers, body = get(app, "/", f"token={TOKEN}")
    assert status == 200
    assert b"Runs" in body
    assert "SameSite=strict" in headers["set-cookie"]
    assert "HttpOnly" in headers["set-cookie"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert get(app, "/static/page.js", cookie=f"{COOKIE}={TOKEN}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8017", "", "127.0.0.1.evil.example"])
def test_other_host_names_are_refused(tmp_path: Path, host: str) -> None:
    status, _, body = get(build_app(tmp_path, TOKEN), "/", f"token={TOKEN}", host)
    assert status == 403
    assert b"only under the address" in body


@pytest.mark.parametrize("host", ["localhost:8017", "127.0.0.1", "[::1]:9"])
def test_names_of_this_machine_are_let_in(tmp_path: Path, host: str) -> None:
    assert get(build_app(tmp_path, TOKEN), "/", f"token={TOKEN}", host)[0] == 200


@pytest.mark.parametrize("path", ["/static/../serve.py", "/static/references.bib", "/static/%2e%2e/serve.py", "/etc"])
def test_no_other_file_is_handed_out(tmp_path: Path, path: str) -> None:
    assert get(build_app(tmp_path, TOKEN), path, f"token={TOKEN}")[0] == 404


def test_runs_outside_of_the_folder_are_not_shown(tmp_path: Path, made_up) -> None:
    made_up(tmp_path / "secret" / "a", stop=2)
    app = build_app(tmp_path / "open", TOKEN)
    status, _, body = get(app, "/api/views", f"token={TOKEN}&run=../secret/a")
    assert status == 200
    assert json.loads(body)["runs"] == []
    assert get(app, "/api/details", f"token={TOKEN}&run=../secret/a")[0] == 404


def test_the_hub_finds_follows_and_forgets_runs(tmp_path: Path, made_up) -> None:
    hub = RunHub(tmp_path / "runs")
    assert not hub.read()
    assert hub.listed() == {"version": 0, "ready": True, "names": [], "runs": []}
    folder = made_up(tmp_path / "runs" / "a", stop=4)
    hub._scanned = 0.0  # as if a second had passed
    assert hub.read()
    seen = hub.listed()
    assert [(run["id"], run["round"], run["state"]) for run in seen["runs"]] == [("a", 4, "running")]
    assert not hub.read()
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(lines[-1].replace('"round": 4', '"round": 5'))
    assert hub.read()
    assert hub.listed(seen["version"])["runs"][0]["round"] == 5
    assert hub.views(["a", "unknown"])["runs"][0]["round"] == 5
    before = hub.listed()["version"]
    (folder / "events.jsonl").write_text('{"event": "left", "round": 5, "client": 1, "name": "b"}\n')
    assert hub.read()  # no round has passed, but a node has gone
    assert hub.listed(before)["runs"][0]["happened"][0] == 1
    (folder / "asking.json").write_text('{"round": 6, "kind": "train", "clients": [0], "since": 1.0}')
    assert hub.read()
    (folder / "rounds.jsonl").unlink()
    hub._scanned = 0.0
    assert hub.read()
    assert hub.listed()["names"] == []


def test_a_run_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path, made_up, monkeypatch) -> None:
    made_up(tmp_path / "bad", stop=2)
    made_up(tmp_path / "good", stop=2)
    whole = FollowedRun.read

    def read(run: FollowedRun) -> bool:
        if run.id == "bad":
            raise MemoryError("too large")
        return whole(run)

    monkeypatch.setattr(FollowedRun, "read", read)
    hub = RunHub(tmp_path)
    assert hub.read()
    assert [(run["id"], run["state"]) for run in hub.listed()["runs"]] == [("bad", "damaged"), ("good", "running")]
    shown = hub.views(["bad", "good"])
    assert [run["id"] for run in shown["runs"]] == ["good"]
    assert shown["notes"] == ["bad: This run cannot be read (MemoryError: too large)."]


def test_the_token_is_kept_and_private(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = kept_token()
    assert kept_token() == first
    file = tmp_path / "fedstein" / "ui-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)  # others could read it: it is no secret any more
    assert kept_token() != first
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert kept_token() != kept_token()


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="folder of runs, got the file"):
        serve(tmp_path / "file", "127.0.0.1", None, print)
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match=r"to be free.*--port"):
            serve(tmp_path, "127.0.0.1", taken.getsockname()[1], print)


@pytest.mark.parametrize("lacking", ["starlette.applications", "uvicorn"])
def test_without_the_extra_the_message_names_it(tmp_path: Path, monkeypatch, lacking: str) -> None:
    monkeypatch.setitem(sys.modules, lacking, None)  # as if it were not installed
    with pytest.raises(InputError, match=r"fedstein\[ui\]"):
        serve(tmp_path, "127.0.0.1", None, lambda address: None)
