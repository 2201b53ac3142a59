"""More rounds for a run: ``fedstein resume DIR --rounds N``.

The run continues from its last checkpoint with another total. If nothing depends on the total, the result is bit for
bit that of a run that was started with N rounds. ``depends_on_total`` says what depends on it.
"""

from __future__ import annotations

from pathlib import Path

from fedstein.errors import InputError
from fedstein.files import disk_errors, read_json, write_bytes, write_json
from fedstein.runs import checkpoint
from fedstein.runs.config import Config
from fedstein.runs.folder import RunFolder


def extend(path: Path, rounds: int) -> tuple[RunFolder, Config]:
    """Give a run, finished or not, another total of rounds. ``resume`` then runs the missing rounds.

    A crash between two of the changes leaves a folder that can be resumed, because of their order: first the run is
    marked as unfinished, then the checkpoint accepts both configs, then the config changes.

    Args:
        path: The run folder.
        rounds: The new total of rounds.

    Returns:
        The folder and its new config.

    Raises:
        InputError: There is no run, it already has that many rounds, or it cannot continue.
    """
    folder, config = RunFolder.open(path)
    if folder.forgotten_file.exists():
        raise InputError(
            f"{path} is a run without a forgotten client, which ends there; start a new run with its config"
        )
    if config.engine.kind != "local":
        raise InputError(f"{path} is a run with engine.kind = {config.engine.kind!r}; more rounds are for local runs")
    with folder.locked():
        if rounds == config.rounds:
            return folder, config
        manifest_file = folder.checkpoint / "manifest.json"
        manifest = read_json(manifest_file, "a checkpoint") if manifest_file.exists() else None
        done = int(manifest["round"]) if isinstance(manifest, dict) and "round" in manifest else 0
        stopped = read_json(folder.summary_file, "a summary").get("stopped") if folder.summary_file.exists() else None
        if stopped:
            raise InputError(
                f"{path} ended early: {stopped}; start a new run without evaluate.patience for more rounds"
            )
        if folder.summary_file.exists() and done < config.rounds:
            raise InputError(
                f"{path} has no checkpoint of its last round {config.rounds}, so it cannot go on; restore the folder, "
                "or start a new run with more rounds"
            )
        if rounds < max(done, 1):
            raise InputError(f"--rounds {rounds}: {path} has {done} rounds already; expected more than these")
        longer = config.model_copy(update={"rounds": rounds})
        with disk_errors(path):
            folder.summary_file.unlink(missing_ok=True)
            if manifest is not None:
                accepted = {*manifest.get("accepted_sha256", ()), manifest["config_sha256"]}
                manifest["accepted_sha256"] = sorted({*accepted, checkpoint.fingerprint(longer)})
                write_json(manifest_file, manifest)
            write_bytes(path / "config.toml", longer.to_toml().encode())
    return folder, longer


def depends_on_total(config: Config) -> str | None:
    """Return a sentence for the user about what depends on the total of rounds; None if nothing does."""
    schedule = getattr(config.algorithm, "schedule", "constant")
    if schedule != "constant":
        return (
            f"algorithm.schedule = {schedule!r} depends on the total of rounds: the steps go on along the schedule of "
            "the new total, so the result is not that of a run started with it"
        )
    if config.evaluate.every > 1:
        return "the last round of the shorter run was evaluated although evaluate.every would skip it"
    return None
