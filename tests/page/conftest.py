"""A browser, a server of the live page, and what both need."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page.chromium import ARGUMENTS, find_or_install
from report.conftest import write_run

AXE = Path(__file__).parent / "axe" / "axe.min.js"
FEDSTEIN = [sys.executable, "-c", "from fedstein.cli import main; main()"]
SECONDS = 90  # how long to wait for something that takes a second or two on a quiet machine


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium. Without one the test fails in CI, and is skipped elsewhere."""
    path, reason = find_or_install()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the browser tests need a browser: {reason}")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """new_page(width, "dark") -> a page that fails the test on any error, and on any request to another place."""
    contexts, faults = [], []

    def opened(width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("request", lambda request: faults.append(request.url) if _elsewhere(request.url) else None)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults


def _elsewhere(url: str) -> bool:
    return not url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:"))


@pytest.fixture(scope="session")
def made_up() -> Callable[..., Path]:
    """made_up(folder, {"seed": 1}, stop=9): a run folder with plausible numbers."""
    return write_run


class Server:
    """``fedstein ui`` as a user starts it."""

    def __init__(self, root: Path, state: Path, port: int | None = None):
        command = [*FEDSTEIN, "ui", str(root), "--no-browser", *(["--port", str(port)] if port else [])]
        self.log = state / f"ui-{time.monotonic_ns()}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "XDG_STATE_HOME": str(state)}
            )
        until = time.monotonic() + SECONDS
        while "Ctrl-C" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.1)
        self.said = self.log.read_text()
        self.address = next(word for word in self.said.split() if word.startswith("http://"))
        self.port = int(self.address.split(":")[2].split("/")[0])

    def processor_seconds(self) -> float:
        """The processor time that the server has used so far."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """End the server as Ctrl-C does, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(2)
        return self.process.wait(30)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """serve(folder) -> a running server of the live page."""
    (tmp_path / "state").mkdir()
    servers: list[Server] = []

    def started(root: Path, port: int | None = None) -> Server:
        servers.append(Server(root, tmp_path / "state", port))
        return servers[-1]

    yield started
    for server in servers:
        server.stop()


def until(page: Any, expression: str, pause: float = 0.05) -> None:
    """Wait for a condition. ``wait_for_function`` would need ``eval``, which the page's security policy forbids."""
    end = time.monotonic() + SECONDS
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never came true: {expression}"
        page.wait_for_timeout(1000 * pause)  # events of the page are handled meanwhile


def serious_findings(page: Any) -> list[str]:
    """What axe-core finds on a page and calls serious or critical."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{entry['id']}: {entry['help']} ({entry['nodes'][0]['html'][:120]})"
        for entry in found["violations"]
        if entry["impact"] in ("serious", "critical")
    ]


def sticks_out(page: Any) -> list[str]:
    """Elements that are cut off at the right edge of the window, scrolling regions aside."""
    return page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter((node) => {
            const box = node.getBoundingClientRect();
            if (box.right <= document.documentElement.clientWidth + 1 || box.width === 0) return false;
            for (let up = node; up; up = up.parentElement) {
                if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(up).overflowX)) return false;
            }
            return true;
        }).map((node) => node.tagName + '.' + node.className)"""
    )


def drawn_charts(page: Any) -> int:
    """How many charts have something on them."""
    page.evaluate("Fedstein.drawAll()")
    return page.evaluate(
        """() => [...document.querySelectorAll('.chart')].filter((node) => {
            node.scrollIntoView();
            const canvas = node.querySelector('canvas');
            if (!canvas) return false;
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return pixels.some((value, k) => k % 4 === 3 && value > 0);
        }).length"""
    )
