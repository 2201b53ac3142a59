"""``fedstein.fit`` trains a posterior on clients' data in this process; ``fedstein.resume`` continues a stopped run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.data.frame_encoding import FrameOptions
from fedstein.data.option_types import check_option_types
from fedstein.data.passed import Columns, read_clients, read_rows
from fedstein.data.passed_dataset import as_dataset, refuse_others, standardised
from fedstein.data.scaling import scaling_of
from fedstein.errors import InputError
from fedstein.federation import protocol
from fedstein.files import folder_path
from fedstein.inference.collapse import parts_of
from fedstein.models import MODELS, Model, ModelTraits, check_model
from fedstein.models.checks import DENSE
from fedstein.models.input_shapes import flat_clients
from fedstein.models.passed import check_kind_of_model
from fedstein.posterior import Posterior, load
from fedstein.progress import in_notebook, pass_lines, show_progress
from fedstein.runs import runner
from fedstein.runs.build import conclude
from fedstein.runs.callbacks import check_callbacks, check_on_round, notified
from fedstein.runs.client_names import barred_names, with_barred
from fedstein.runs.config import Config, Layer, merge, resolve, unknown
from fedstein.runs.config_sources import combine
from fedstein.runs.defaults import Facts
from fedstein.runs.doubts import doubts
from fedstein.runs.early_stopping import stop_reason
from fedstein.runs.federate import PreparedRun, prepare_run
from fedstein.runs.folder import RunFolder, refuse_used
from fedstein.runs.kept_rows import write_rows
from fedstein.runs.refining import refine_conclusion

OnRound = Callable[[Mapping[str, Any]], None]
NO_COLUMNS = Columns()


def fit(
    model: str | Model,
    clients: Any,
    *,
    target: str | None = None,
    client: str | None = None,
    test: Any = None,
    standardise: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    callbacks: Sequence[Any] = (),
    on_round: OnRound | None = None,
    early_stopping: int | None = None,
    **flat: Any,
) -> Posterior:
    """Train a posterior over clients' data in this process.

    Features, and the target of a regression, are standardised as those of files are: numeric columns by the sums that
    clients send, columns of only 0 and 1 not at all, counts never. Precision follows JAX's x64 flag.

    Args:
        model: The name of a model (``"blr"``, ``"linear"``, ``"poisson"``, ..., an import path), or a ``Model`` of your
            own (``fedstein.models.custom``).
        clients: A dict from names to clients, a list of clients, or one DataFrame with ``client=`` and ``target=``. A
            client is a pair (x, y), x an array or a DataFrame, or a DataFrame with ``target=``. DataFrames are those of
            pandas or Polars; their columns go by name, and their floats are cast to the precision of the run. Labels
            may be of any type.
        target: The column of the DataFrames that is to be predicted.
        client: The column of one DataFrame that names the owner of each row.
        test: Rows that give metrics in each round, in the form of a client. Without them ``evaluate__where="clients"``
            does, on rows that every client holds out.
        standardise: Whether to standardise. By default the models that have a name do, and a ``Model`` of your own,
            whose prior is for the rows as they are, does not. Predictions are in your units in any case, and
            ``posterior.summary(units="own")`` gives the coefficients in them.
        settings: Settings of the config file, nested: ``{"selection": {"kind": "hip"}}``.
        out: A new folder. It becomes a run folder like that of ``fedstein run``, so that the run can be resumed and
            reported on; it then holds the rows too. Without it nothing is written.
        progress: Whether to show a progress bar.
        callbacks: Objects with the methods of ``fedstein.Callback``.
        on_round: Is called with the record of every round, a mapping with the keys of ``rounds.jsonl``.
        early_stopping: After how many evaluations without a lower NLL on rows that clients hold out the run ends; short
            for ``evaluate__patience``. The last record, and ``summary.json``, then say why (``stopped``).
        **flat: Settings with two underscores for the dot: ``selection__kind="hip"``, ``rounds=60``.

    Returns:
        The posterior.

    Raises:
        InputError: Rows, labels or settings are wrong; float64 arrays while JAX's x64 flag is off are, too; or the
            functions of a model of your own do not fit together (``fedstein.models.check_model``).
        Interrupted: The user stopped a run that has a folder; ``fedstein.resume`` goes on with it.
    """
    if early_stopping is not None:
        if "evaluate__patience" in flat:
            raise InputError("early_stopping is short for evaluate__patience; pass one of them")
        flat = {**flat, "evaluate__patience": early_stopping}
    precision = np.dtype(jnp.result_type(float))
    check_kind_of_model(model)
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"settings: expected a dict of sections, got {settings!r}")
    check_callbacks(callbacks)
    check_on_round(on_round)
    if out is not None:
        refuse_used(folder_path(out))
    own = model if isinstance(model, Model) else None
    if own is not None:
        clients = flat_clients(own, clients)
        test = flat_clients(own, [test])[0]
    passed = read_clients(clients, target, client, precision, frame_options(settings or {}, flat))
    held = None if test is None else read_rows(test, passed.columns, "test", precision)
    scale = own is None if standardise is None else standardise
    layers = gather(settings or {}, flat, model, passed.columns, out is not None, scale)
    task = own.task if own is not None else MODELS[str(model)].task
    dataset, labels = as_dataset(passed, held, task, own.classes if own is not None else None, precision)
    counts = (own.target if own is not None else MODELS[str(model)].traits.target) == "count"
    if counts:
        refuse_others(dataset, passed.called())
    if scale:
        dataset = standardised(dataset, task == "regression" and not counts)
    facts = Facts(dataset.task, dataset.classes, len(passed.rows), features=dataset.train_x.shape[1])
    if own is not None:
        check_model(own, dataset.train_x, dataset.train_y, thorough=own.dim <= DENSE)
        facts = facts._replace(
            traits=ModelTraits(target=own.target, whole_shard=own.whole_shard, moved=len(parts_of(own).moved)),
            dim=own.dim,
        )
    config, notes = resolve(with_barred(layers, passed.names) if barred_names(layers) else layers, facts)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    if config.evaluate.where == "clients" and test is not None:
        raise InputError("evaluate.where = 'clients' uses rows that each client holds out; leave test out")
    run = prepare_run(config, dataset, model=own)
    names = [client.name for client in run.engine.clients]
    after = pass_lines(not progress or in_notebook())  # a notebook shows one bar and no lines
    with notified(callbacks, config.to_dict()) as told, show_progress(config.rounds, not progress, names) as shown:

        def report(record: Mapping[str, Any]) -> None:
            for each in (told.on_round, shown, on_round):
                if each is not None:
                    each(record)

        if out is None:
            posterior, summary = play_in_memory(run, report, after)
        else:
            summary = runner.start(
                run, Path(out), report, lambda folder: write_rows(folder.path, dataset), on_pass=after
            )
            posterior = load(out, model=own)
        told.finish(summary)
    refused = (summary.get("gaussian") or {}).get("refused")
    if refused:
        warnings.warn(refused, stacklevel=2)
    encoding = passed.columns.encoding
    features = encoding.feature_names if encoding is not None else ()
    scaling = scaling_of(dataset) if scale else posterior.scaling
    return replace(posterior, labels=labels, features=features, encoding=encoding, scaling=scaling)


def resume(
    path: str | Path,
    *,
    model: Model | None = None,
    progress: bool = False,
    callbacks: Sequence[Any] = (),
    on_round: OnRound | None = None,
) -> Posterior:
    """Go on with a run that was stopped, like ``fedstein resume``.

    Args:
        path: The run folder.
        model: The model, if it is one of your own: a folder cannot hold it.
        progress: Whether to show a progress bar.
        callbacks: Objects with the methods of ``fedstein.Callback``.
        on_round: Is called with the record of every further round.

    Returns:
        The posterior.

    Raises:
        InputError: The folder holds no run that can go on, or the model is missing.
    """
    check_on_round(on_round)
    folder, config = runner.open_run(folder_path(path))
    if config.engine.precision != str(jnp.result_type(float)):
        raise InputError(
            f"{path} was run in {config.engine.precision}, but JAX's x64 flag is "
            f"{'on' if jnp.result_type(float) == jnp.float64 else 'off'}; set jax.config.jax_enable_x64 accordingly"
        )

    def prepare(folder: RunFolder, config: Config) -> PreparedRun:
        return runner.in_process(folder, config, model)

    def note(done: int, changes: list[str]) -> None:
        for change in changes:
            warnings.warn(f"{change}: the result may differ in the last bits", stacklevel=3)

    after = pass_lines(not progress or in_notebook())
    with (
        notified(callbacks, config.to_dict()) as told,
        show_progress(config.rounds, not progress, folder.client_names()) as shown,
    ):

        def report(record: Mapping[str, Any]) -> None:
            for each in (told.on_round, shown, on_round):
                if each is not None:
                    each(record)

        told.finish(runner.resume(folder, config, note, report, prepare, on_pass=after))
    return load(path, model=model)


def play_in_memory(
    run: PreparedRun, on_round: OnRound, on_pass: runner.OnPass = runner.silent
) -> tuple[Posterior, dict[str, Any]]:
    """Play all rounds without a folder.

    Args:
        run: The run.
        on_round: Is called with the record of every round.
        on_pass: Gets a line for each pass after the last round.

    Returns:
        The posterior, and what ``summary.json`` would say.
    """
    config, context, engine = run.config, run.context, run.engine
    last, records = protocol.first(context), []
    for state, record in protocol.run_rounds(context, last):
        records.append(record)
        if state.round < config.rounds and (reason := stop_reason(config.evaluate.patience, records)):
            records[-1] = record = replace(record, stopped=reason)
        last = state
        on_round(record.to_dict())
        if record.stopped:
            break
    method = context.method
    end_of_run = refine_conclusion(config, engine, last, conclude(method, last.server), on_pass)
    found, refined = end_of_run.found, end_of_run.refined
    each, end = None, runner.FinalScores()
    if config.evaluate.where == "clients":
        reading = run.evaluation(last.round, method.posterior(found.server), last.sites)
        each, end = reading.by_client(engine.clients), runner.FinalScores(reading)
    summary = runner.summarise(records, len(engine.clients), end) | runner.describe_conclusion(found, end)
    lines = [record.to_dict() for record in records]
    posterior = Posterior(
        context.method.spec.model,
        run.federation.particles(found.server),
        lines,
        config,
        found.gaussian,
        each,
        sums=found.sums,
        doubts=doubts(config, lines, refined, end_of_run.weights),
        client_names=tuple(info.name for info in engine.clients),
        weighted=end_of_run.weighted,
    )
    return posterior, summary | ({"refined": refined} if refined is not None else {})


def gather(
    settings: Mapping[str, Any],
    flat: Mapping[str, Any],
    model: str | Model,
    columns: Columns = NO_COLUMNS,
    kept: bool = False,
    standardise: bool = False,
) -> list[Layer]:
    """Collect what was passed to ``fit`` as layers of a config.

    Args:
        settings: Nested settings.
        flat: Keyword arguments, with two underscores for the dot; they win over ``settings``.
        model: A model's name, or a model.
        columns: The names of the target and client columns, which the config remembers.
        kept: Whether the run has a folder.
        standardise: Whether the rows were standardised.

    Returns:
        The layers for ``resolve``.

    Raises:
        InputError: A setting has no meaning here, or contradicts the model.
    """
    keywords: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.partition("__")
        if not name:
            keywords[section] = value
        elif isinstance(keywords.setdefault(section, {}), dict) and isinstance(settings.get(section, {}), Mapping):
            keywords[section][name] = value
        else:
            raise InputError(f"{key}: {section} is a value, not a section; write {section}=VALUE")
    layers: list[Layer] = [("settings", merge(settings, [])), ("the keyword arguments", keywords)]
    raw = combine(layers)
    for section, instead in NOT_HERE.items():
        given = raw.get(section)
        of_frames = section == "data" and isinstance(given, Mapping) and set(given) <= set(FrameOptions._fields)
        if section in raw and not of_frames and not (kept and section == "checkpoint"):
            raise InputError(f"[{section}] has no meaning in fedstein.fit: {instead}")
    own = raw.get("model", {})
    here: dict[str, Any] = {
        "data": {
            "name": "file",
            "standardize": standardise,
            **({"target": columns.target} if columns.target else {}),
            **({"client": columns.client} if columns.client else {}),
        },
        "partition": {"kind": "given"},
        "engine": {"precision": str(jnp.result_type(float))},
    }
    if isinstance(model, Model):
        if own:
            raise InputError(f"[model] settings are for the built-in models, got {own} with a model of your own")
    else:
        if model not in MODELS:
            raise InputError(unknown("model", model, list(MODELS)))
        if isinstance(own, Mapping) and own.get("kind", model) != model:
            raise InputError(f"model.kind = {own['kind']!r} contradicts the model {model!r}; leave it out")
        here["model"] = {"kind": model}
    return [("fedstein.fit", here), *(layer for layer in layers if layer[1])]


def frame_options(settings: Mapping[str, Any], flat: Mapping[str, Any]) -> FrameOptions:
    """Collect the options for the columns of DataFrames from the settings of ``[data]``, and check their types."""
    section = settings.get("data")
    found = dict(section) if isinstance(section, Mapping) else {}
    found |= {key.removeprefix("data__"): value for key, value in flat.items() if key.startswith("data__")}
    options = {key: found[key] for key in FrameOptions._fields if key in found}
    check_option_types(options)
    return FrameOptions(**options)


NOT_HERE = {
    "data": "the rows are what you pass, and standardise=False leaves them as they are; data.features, drop, "
    "categories, missing and coding are for DataFrames",
    "partition": "the clients are what you pass",
    "engine": "it runs in this process; set threads with the environment variable NPROC before JAX starts, and the "
    "precision with JAX's x64 flag",
    "checkpoint": "it keeps everything in memory; pass out=DIR for a run folder with checkpoints",
}
