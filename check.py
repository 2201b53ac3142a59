"""Set everything up and check everything: format, lint, types, docs, tests. Needs Python 3.11+ with pip, nothing else.

python3 check.py            the whole check, as CI runs it
python3 check.py --fast     the everyday part: without the tests marked slow
python3 check.py -- ARGS    further arguments go to pytest
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
BIN = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")


def call(*command: str, **variables: str) -> None:
    print("+", " ".join(command), flush=True)
    code = subprocess.call(command, cwd=ROOT, env={**os.environ, **variables})
    if code:
        sys.exit(code)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs before anything has checked the version
        sys.exit(f"Fedstein needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    own, for_pytest = arguments[:split], arguments[split + 1 :]
    if set(own) - {"--fast"}:
        sys.exit(__doc__)
    if not (BIN / "python").exists() and not (BIN / "python.exe").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = str(BIN / "python")
    call(python, "-m", "pip", "install", "--quiet", "--editable", ".[test,docs]")
    call(python, "-m", "ruff", "format", "--check", ".")
    call(python, "-m", "ruff", "check", ".")
    call(python, "-m", "mypy")
    site = str(ENVIRONMENT / "site")  # not --quiet: MkDocs then counts no warnings, and --strict lets them pass
    call(python, "-m", "mkdocs", "build", "--strict", "--site-dir", site, NO_MKDOCS_2_WARNING="1")
    marks = ["-m", "not slow"] if "--fast" in own else []
    # Three workers with one XLA thread each: for two cores, as one mostly waits for processes that a test has started.
    variables = {
        "NPROC": "1",
        "JAX_COMPILATION_CACHE_DIR": str(ENVIRONMENT / "jax-cache"),  # many tests start processes with equal programs
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # small programs too: 14% less processor time in all
        "PYTHONDONTWRITEBYTECODE": "",  # else every process of every test would compile every module again
    }
    call(
        python, "-m", "pytest", "-n", "3", "--dist", "worksteal", "--durations", "40", *marks, *for_pytest, **variables
    )


if __name__ == "__main__":
    main()
