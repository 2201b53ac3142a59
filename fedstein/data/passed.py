"""Clients as a user passes them to ``fedstein.fit``: pairs of arrays, DataFrames, or one DataFrame with all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedstein.data.encoding import Encoding, plain_encoding
from fedstein.data.frame_encoding import FrameOptions, choose_frame_encoding, chosen_columns, frame_table
from fedstein.data.frames import frame_column, is_frame, no_value
from fedstein.errors import InputError

Rows = tuple[np.ndarray, np.ndarray]  # features and targets
NO_OPTIONS = FrameOptions()


class Columns(NamedTuple):
    """The roles of the columns of DataFrames: features, target and client.

    Attributes:
        features: The names of the features, in the order of the first client; empty if clients are arrays.
        target: The column to predict; empty if targets are passed separately.
        client: The column with the owner of each row; empty if there is none.
        encoding: How the features become numbers; None if they are numbers already.
        options: The user's settings for the columns.
    """

    features: tuple[str, ...] = ()
    target: str = ""
    client: str = ""
    encoding: Encoding | None = None
    options: FrameOptions = NO_OPTIONS

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that rows may have beside the features."""
        return tuple(name for name in (self.target, self.client) if name)


class PassedClients(NamedTuple):
    """The clients of ``fedstein.fit``, checked.

    Attributes:
        names: The name of each client.
        rows: Features and targets of each client; targets are of the type that was passed.
        columns: The names of the columns.
    """

    names: tuple[str, ...]
    rows: list[Rows]
    columns: Columns

    def called(self) -> list[str]:
        """The name of each client in messages."""
        return [_called(k, name) for k, name in enumerate(self.names)]


def read_clients(
    clients: Any, target: str | None, client: str | None, precision: Any, options: FrameOptions = NO_OPTIONS
) -> PassedClients:
    """Read clients in any of the forms that ``fedstein.fit`` takes.

    Args:
        clients: A mapping from names to clients, a sequence of clients, or one DataFrame with a column of clients. A
            client is a pair (x, y), in which x is an array or a DataFrame, or a DataFrame with a column of targets.
        target: The name of the target column.
        client: The name of the column that names the owner of each row.
        precision: The type of the features.
        options: What the user wants of the columns of DataFrames.

    Returns:
        The clients. The columns of all DataFrames are put into the order of the first client, by name.

    Raises:
        InputError: The clients have another form, columns are missing or superfluous, or rows are not numbers.
    """
    for argument, name in (("target", target), ("client", client)):
        if name is not None and not isinstance(name, str):
            raise InputError(f"{argument}: expected the name of one column, got {name!r}")
    if is_frame(clients):
        clients = split_frame(clients, target, client)
    elif client is not None:
        raise InputError(
            f"client={client!r} names a column of one DataFrame with everybody's rows, got clients as "
            f"{type(clients).__name__}; leave it out"
        )
    names, parts = _named(clients)
    columns = Columns((), target or "", client or "", options=options)
    called = [_called(k, name) for k, name in enumerate(names)]
    if not parts:
        raise InputError("expected at least one client as (x, y), got none")
    columns = _coded(parts, columns, called)
    rows = [read_rows(part, columns, where, precision) for part, where in zip(parts, called, strict=True)]
    if options != NO_OPTIONS and not columns.features:
        raise InputError("data.features, drop, categories, missing and coding are for DataFrames, got arrays")
    if target is not None and not columns.features:
        raise InputError(f"target={target!r} names a column of DataFrames, got arrays; leave it out")
    widths = {x.shape[1] for x, _ in rows}
    if len(widths) > 1:
        raise InputError(f"expected every client to have the same features, got {sorted(widths)} columns")
    return PassedClients(names, rows, columns)


def split_frame(frame: Any, target: str | None, client: str | None) -> dict[str, Any]:
    """Split a DataFrame with the rows of all clients into one DataFrame for each client, sorted by name."""
    if target is None or client is None:
        raise InputError(
            "one DataFrame needs client= and target=, the names of the columns with the owner of each row and with "
            f"what is to be predicted; got client={client!r} and target={target!r}"
        )
    if target == client:
        raise InputError(f"expected different columns for target and client, got {target!r} twice")
    owners = frame_column(frame, client, "clients", "client")
    for row, owner in enumerate(owners.tolist()):
        if no_value(owner):
            raise InputError(f"clients: expected a client in column {client!r}, got none in row {row}; remove the row")
    texts = np.array([str(owner) for owner in owners.tolist()], np.str_)
    by_value = len({type(owner) for owner in owners.tolist()}) == 1
    order = dict.fromkeys(str(owner) for owner in (sorted(set(owners.tolist())) if by_value else sorted(set(texts))))
    return {name: _some_rows(frame, np.flatnonzero(texts == name)) for name in order}


def read_rows(part: Any, columns: Columns, where: str, precision: Any) -> Rows:
    """Features and targets of one client, or of the test rows.

    Args:
        part: A pair (x, y) or a DataFrame with a target column.
        columns: What the columns are.
        where: What messages call it.
        precision: The type of the features.

    Returns:
        Features, and targets of the type that was passed.

    Raises:
        InputError: It is neither, or its columns are not those of the first client.
    """
    if is_frame(part):
        if not columns.target:
            raise InputError(f"{where}: a DataFrame needs target=, the name of the column to predict")
        x = features_of(part, columns, where, precision, extra=True)
        y = frame_column(part, columns.target, where, "target")
    else:
        try:
            raw, y = part
        except (TypeError, ValueError):
            raise InputError(f"{where}: expected a pair (x, y), got {type(part).__name__}") from None
        if columns.features and not is_frame(raw):
            raise InputError(
                f"{where}: got an array, but the first client is a DataFrame, whose columns have names; pass "
                "DataFrames throughout"
            )
        refuse_other_order(raw, y, where)
        refuse_masked(y, f"{where}: y")
        x, y = features_of(raw, columns, f"{where}: x", precision, extra=False), as_array(y, f"{where}: y")
    if len(x) == 0:
        raise InputError(f"{where} has no rows; leave it out")
    if y.shape != (len(x),):
        raise InputError(f"{where}: expected {len(x)} targets, one a row, got shape {y.shape}")
    return x, y


def features_of(x: Any, columns: Columns, where: str, precision: Any, extra: bool, features: int = 0) -> np.ndarray:
    """Convert features to numbers. The columns of a DataFrame are found by name, those of an array by position.

    Args:
        x: The rows.
        columns: What the columns are.
        where: What messages call the rows.
        precision: The type of the result.
        extra: Whether a DataFrame may have the target and client columns too.
        features: The number of features that there must be; 0 for any.

    Returns:
        Rows x features.

    Raises:
        InputError: The rows have other columns, or are not numbers.
    """
    if not is_frame(x):
        return as_rows(x, where, precision, features)
    if not columns.features:
        raise InputError(
            f"{where}: got a DataFrame, but the rows before it were arrays, whose columns have no names; pass "
            "DataFrames throughout, or x.to_numpy()"
        )
    others = columns.others if extra else ()
    table = frame_table(x, columns.features, others, columns.options, where)
    return (columns.encoding or plain_encoding(columns.features)).encode(table).astype(precision)


def as_rows(x: Any, name: str, precision: Any, features: int = 0) -> np.ndarray:
    """Convert an array to the form that models take: two-dimensional finite floats.

    Args:
        x: The rows.
        name: What messages call them.
        precision: The type of the result. Arrays of float64 are not cast to float32, because the user must decide this.
        features: The number of columns that there must be; 0 for any.

    Returns:
        Rows x features.

    Raises:
        InputError: The rows have another shape, are not finite numbers, or are float64 in a float32 run.
    """
    if getattr(x, "dtype", None) == np.float64 and np.dtype(precision) != np.float64:
        raise InputError(
            f"{name} is float64 but JAX's x64 flag is off; pass x.astype('float32'), or turn the flag on first: "
            "jax.config.update('jax_enable_x64', True)"
        )
    refuse_masked(x, name)
    if hasattr(x, "toarray"):
        raise InputError(f"{name}: expected an array, got a sparse matrix; pass x.toarray()")
    array = as_array(x, name)
    if array.ndim != 2 or (features and array.shape[1] != features):
        raise InputError(f"{name}: expected rows x {features or 'features'}, got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected numbers, got {array.dtype}")
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name}: expected finite numbers, got {array[row, column]} in row {row}, column {column}")
    return array.astype(precision)


def as_array(values: Any, name: str) -> np.ndarray:
    """Convert what was passed to a NumPy array.

    Args:
        values: An array, a list, a tensor, or anything else that NumPy can read.
        name: What messages call it.

    Raises:
        InputError: NumPy cannot read it, for example rows of different lengths or a tensor that has a gradient.
    """
    try:
        return np.asarray(values)
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"{name}: expected an array, got {type(values).__name__}, which NumPy cannot read: {why}"
        ) from None


def refuse_masked(values: Any, name: str) -> None:
    """Refuse a masked array with masked cells, because NumPy would silently drop the mask.

    Args:
        values: What was passed.
        name: What messages call it.

    Raises:
        InputError: A cell is masked.
    """
    if isinstance(values, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(values)).any():
        first = ", ".join(str(int(place)) for place in np.argwhere(masked)[0])
        raise InputError(
            f"{name}: expected a value in every cell, got {int(masked.sum())} masked ones, the first at [{first}]; "
            "fill them in with filled(), or leave their rows out"
        )


def refuse_other_order(x: Any, y: Any, where: str) -> None:
    """Refuse pandas x and y with the same row labels in another order: matching by position would mix up the rows."""
    ours, theirs = getattr(x, "index", None), getattr(y, "index", None)
    if not all(hasattr(index, "sort_values") and getattr(index, "is_unique", False) for index in (ours, theirs)):
        return
    assert ours is not None
    assert theirs is not None
    if len(ours) == len(theirs) and not ours.equals(theirs) and set(ours) == set(theirs):
        raise InputError(f"{where}: x and y have the same index in another order; pass y.loc[x.index]")


def _coded(parts: Sequence[Any], columns: Columns, called: Sequence[str]) -> Columns:
    """Find the features of the first client and the encoding of all clients' features; nothing for arrays."""
    frames = [_frame_of(part) for part in parts]
    if frames[0] is None:
        return columns
    others = () if isinstance(parts[0], (tuple, list)) else columns.others
    names = chosen_columns(frames[0], others, columns.options, called[0])
    tables = [
        frame_table(frame, names, () if isinstance(part, (tuple, list)) else others, columns.options, where)
        for frame, part, where in zip(frames, parts, called, strict=True)
        if frame is not None and len(frame)  # other objects and empty DataFrames are refused when they are read
    ]
    if not tables:
        return columns._replace(features=names)
    return columns._replace(features=names, encoding=choose_frame_encoding(tables, names, columns.options))


def _frame_of(part: Any) -> Any:
    """The DataFrame of a client, if it has one."""
    if is_frame(part):
        return part
    x = part[0] if isinstance(part, (tuple, list)) and part else None
    return x if is_frame(x) else None


def _named(clients: Any) -> tuple[tuple[str, ...], list[Any]]:
    if isinstance(clients, Mapping):
        if any(no_value(name) for name in clients):
            raise InputError("expected a name for every client, got a client whose name is missing (None or NaN)")
        names = tuple(str(name) for name in clients)
        if len(set(names)) < len(names):
            raise InputError(f"expected different names of clients, got {', '.join(names)}")
        return names, list(clients.values())
    if isinstance(clients, (str, bytes)) or not hasattr(clients, "__iter__"):
        raise InputError(f"expected clients as a dict, a list or a DataFrame, got {type(clients).__name__}")
    parts = list(clients)
    return tuple(f"client-{k}" for k in range(len(parts))), parts


def _called(number: int, name: str) -> str:
    return f"client {number}" if name == f"client-{number}" else f"client {name!r}"


def _some_rows(frame: Any, rows: np.ndarray) -> Any:
    """Rows of a pandas or Polars DataFrame by position."""
    return frame.iloc[rows] if hasattr(frame, "iloc") else frame[rows.tolist()]
