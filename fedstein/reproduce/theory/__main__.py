"""``python -m fedstein.reproduce.theory CONFIG.toml FOLDER``: one run of ``fedstein reproduce theory``."""

import sys
from pathlib import Path

from fedstein.cli import fail
from fedstein.errors import FedsteinError
from fedstein.reproduce.theory.run import play_and_look
from fedstein.runs.config import read_toml, resolve
from fedstein.runs.wiring import facts_of, load_dataset, wire
from fedstein.start import start_jax

try:
    raw = read_toml(Path(sys.argv[1]))
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    start_jax(config)
    play_and_look(wire(config, dataset), Path(sys.argv[2]))
except FedsteinError as error:
    fail(str(error), error.exit_code)
