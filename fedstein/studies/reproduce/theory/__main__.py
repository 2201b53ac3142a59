"""``python -m fedstein.studies.reproduce.theory CONFIG.toml FOLDER``: one run of ``fedstein reproduce theory``."""

import sys
from pathlib import Path

from fedstein.console import fail
from fedstein.errors import FedsteinError
from fedstein.runs.config import read_toml, resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run
from fedstein.runs.jax_setup import start_jax
from fedstein.studies.reproduce.theory.runs import run_and_measure

try:
    raw = read_toml(Path(sys.argv[1]))
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    start_jax(config)
    run_and_measure(prepare_run(config, dataset), Path(sys.argv[2]))
except FedsteinError as error:
    fail(str(error), error.exit_code)
