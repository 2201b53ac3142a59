"""The system's Chromium: found, or installed where that is possible without asking anybody."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",  # tests may run as root, for whom Chromium has no sandbox
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """The path of a Chromium on this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_or_install() -> tuple[str | None, str]:
    """The path of a Chromium, and where there is none, the reason. On Debian as root it is installed, once."""
    if path := find():
        return path, ""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None, "no Chromium on this machine, and only root on Debian can install it: apt-get install chromium"
    with (Path(tempfile.gettempdir()) / "fedstein-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one test run wait for the first of them
        if path := find():
            return path, ""
        quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "capture_output": True, "text": True}
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
            done = subprocess.run(command, timeout=600, check=False, **quiet)
            if done.returncode:
                return None, f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}"
    return find(), "apt-get installed no Chromium"
