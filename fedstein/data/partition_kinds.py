"""The partitions that a config can name, each with its settings. ``partition`` holds how rows are shared out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic import Field

from fedstein.data.client_order import Order, client_order
from fedstein.data.dataset import Dataset
from fedstein.data.partition import PARTITIONS, Shards, partition
from fedstein.registry import Registry
from fedstein.settings import Count, Positive, PositiveFloat, Settings


class PartitionSettings(Settings):
    """The keys of ``[partition]`` that every partition has."""

    kind: str
    clients: Positive = Field(10, description="K, the number of clients.")
    order: Order = Field(
        "dealt",
        description="How clients are numbered: as the partition deals them, in blocks of clients that hold the same "
        "labels, or shuffled by the seed. Round robin depends on it.",
    )
    flip: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of a client's training labels that is replaced by other labels, for studies of robustness.",
    )
    flip_clients: list[int] | None = Field(
        None, description="The clients whose labels are replaced, by id; all of them unless some are named."
    )


class SizedSettings(PartitionSettings):
    """The keys of the partitions that decide how many rows a client gets."""

    rows_per_client: Count = Field(0, description="Rows of each client; 0 distributes all rows.")


class IidSettings(SizedSettings):
    """Settings of the partition at random."""

    kind: str = "iid"


class LabelRatioSettings(SizedSettings):
    """Settings of the partition in which every client has a main label."""

    kind: str = "label_ratio"
    ratio: float = Field(0.9, ge=0, le=1, description="Share of a client's rows that has its main label.")


class ClassesSettings(SizedSettings):
    """Settings of the partition in which every client holds few classes."""

    kind: str = "classes_per_client"
    classes: Positive = Field(3, description="Classes that a client holds.")
    deal: Literal["balanced", "random"] = Field(
        "balanced",
        description="How classes are assigned: so that every class has equally many clients, or at random.",
    )


class DirichletSettings(SizedSettings):
    """Settings of the partition by a Dirichlet distribution."""

    kind: str = "dirichlet"
    concentration: PositiveFloat = Field(
        0.1, description="Concentration of the distribution; a smaller value makes the clients more uneven."
    )


class GivenSettings(PartitionSettings):
    """Settings of the partition that the data brings along."""

    kind: str = "given"


class PartitionKind(NamedTuple):
    """A partition that a config can name.

    Attributes:
        name: The value of ``partition.kind``.
        about: One line that says how rows are shared out.
        settings: The settings class, a subclass of ``PartitionSettings``.
        split: Dataset, settings, seed -> row numbers into the training rows, one array for each client.
    """

    name: str
    about: str
    settings: type[PartitionSettings]
    split: Callable[[Dataset, Any, int], Shards]


def split_by_name(dataset: Dataset, settings: PartitionSettings, seed: int) -> Shards:
    """Share rows out by a built-in partition.

    Args:
        dataset: The dataset.
        settings: The settings of ``[partition]``.
        seed: The seed of the run.

    Returns:
        Row numbers into the training rows, one array for each client.

    Raises:
        InputError: The rows cannot be shared out like that.
    """
    return partition(
        dataset, settings.kind, seed=seed, **settings.model_dump(exclude={"kind", "order", "flip", "flip_clients"})
    )


PARTITION_KINDS: Registry[PartitionKind] = Registry("partition.kind", "fedstein.partitions", PartitionKind)
_CLASSES: tuple[type[PartitionSettings], ...] = (
    IidSettings,
    LabelRatioSettings,
    ClassesSettings,
    DirichletSettings,
    GivenSettings,
)
for _settings in _CLASSES:
    _name = _settings.model_fields["kind"].default
    _about = (PARTITIONS[_name].__doc__ or "").strip().splitlines()[0].rstrip(".")
    PARTITION_KINDS.register(PartitionKind(_name, _about, _settings, split_by_name))


def share_rows(dataset: Dataset, settings: PartitionSettings, seed: int) -> Shards:
    """Share the training rows out over clients, by a built-in partition or a plug-in.

    Args:
        dataset: The dataset.
        settings: The settings of ``[partition]``.
        seed: The seed of the run.

    Returns:
        Row numbers into the training rows, one array for each client.

    Raises:
        InputError: There is no such partition, or the rows cannot be shared out like that.
    """
    shards = PARTITION_KINDS.find(settings.kind).split(dataset, settings, seed)
    return [shards[index] for index in client_order(dataset, shards, settings.order, seed)]


def given_names(dataset: Dataset, settings: PartitionSettings, seed: int) -> list[str] | None:
    """The names that the data gives its clients, in the order of their ids; None if the clients are not its own.

    Args:
        dataset: The dataset.
        settings: The settings of ``[partition]``.
        seed: The seed of the run.
    """
    if settings.kind != "given":
        return None
    if settings.order == "dealt":
        return list(dataset.client_names)
    shards = PARTITION_KINDS.find(settings.kind).split(dataset, settings, seed)
    return [dataset.client_names[index] for index in client_order(dataset, shards, settings.order, seed)]
