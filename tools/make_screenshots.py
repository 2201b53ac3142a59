"""Make the screenshots of docs/page.md from a folder of runs: python tools/make_screenshots.py RUNS. Needs Chromium.

RUNS has cov-ksd-0, other runs that begin with cov-, and digits. page-nodes.png, of a live run over nodes, is
made by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def shot(page: Any, name: str, selector: str | None = None) -> None:
    """Write what is in the window, or one view, as a PNG."""
    page.evaluate("Fedstein.drawAll()")
    page.wait_for_timeout(800)
    target = page if selector is None else page.locator(selector)
    target.screenshot(path=IMAGES / f"{name}.png")


def opened(browser: Any, address: str, runs: list[str], width: int, height: int, scheme: str = "light") -> Any:
    """A page with some runs chosen, and everything loaded."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(f"{address}#{urlencode([('run', run) for run in runs])}")
    page.wait_for_selector("#view-rows")
    while page.locator(".loading").count():
        page.wait_for_timeout(500)
    return page


def main() -> None:
    """Start the live page, and take the pictures."""
    root = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as state:
        server = subprocess.Popen(
            [sys.executable, "-m", "fedstein", "ui", str(root), "--no-browser"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": state},
        )
        assert server.stdout is not None
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        time.sleep(5)
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            several = [run for run in sorted(os.listdir(root)) if run.startswith("cov-")]
            shot(opened(browser, address, several, 1280, 860), "page-compare")
            one = opened(browser, address, ["cov-ksd-0"], 1000, 900)
            shot(one, "page-picks", "#view-heat")
            shot(one, "page-forest", "#view-forest")
            shot(opened(browser, address, ["digits"], 1500, 900), "page-rows", "#view-rows")
            shot(opened(browser, address, ["digits"], 400, 860, "dark"), "page-phone")
            browser.close()
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
