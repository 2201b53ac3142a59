"""Runs jobs one after another in this process, because small runs would spend most of their time starting a process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from fedstein.errors import FedsteinError
from fedstein.files import disk_errors
from fedstein.runs import runner
from fedstein.runs.config import whole_config
from fedstein.runs.federate import load_dataset, prepare_run
from fedstein.runs.jax_setup import release_programs, start_jax
from fedstein.runs.parallel_jobs import is_finished
from fedstein.runs.series import SeriesRun


def run_jobs_here(
    jobs: Sequence[SeriesRun],
    place: Path,
    on_progress: Callable[[float, str], None],
    on_failure: Callable[[SeriesRun, str], None],
) -> dict[SeriesRun, Path]:
    """Run or continue the jobs that are not finished yet. ``parallel_jobs.run_jobs`` does the same with processes.

    Args:
        jobs: The runs.
        place: The folder for their folders.
        on_progress: A function that is called with the share of the jobs that is done and the name of the next job.
        on_failure: A function that is called with a job that failed and the reason; the other jobs continue.

    Returns:
        The folder of every job.

    Raises:
        Interrupted: The user stopped a run; it continues when this function is called again with the same jobs.
    """
    folders = {job: place / job.name for job in jobs}
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    for number, job in enumerate(jobs):
        if is_finished(folders[job]):
            continue
        on_progress(number / len(jobs), job.name)
        try:
            run_job(job, folders[job])
        except runner.Interrupted:
            raise
        except FedsteinError as error:
            on_failure(job, str(error))
    on_progress(1.0, "")
    return folders


def run_job(job: SeriesRun, folder: Path) -> None:
    """Run a job from its start, or from its last checkpoint.

    Args:
        job: The run.
        folder: Its folder.

    Raises:
        FedsteinError: The run failed.
    """
    release_programs()
    if (folder / "config.toml").exists():
        runner.resume(*runner.open_run(folder), lambda done, changes: None, lambda record: None)
        return
    if folder.exists():  # left over from a start that was killed before the run began; it has no results
        shutil.rmtree(folder)
    raw = job.config(1)
    config = whole_config(raw, job.name)
    start_jax(config)
    runner.start(prepare_run(config, load_dataset(raw)), folder, lambda record: None)
