"""The site table: the arrays that the server has accepted from each client, within a budget of memory.

A table is never changed in place: a round makes the next one from it, so a round that fails leaves no trace. Entries
that have not changed are the same objects in both, so a checkpoint can tell which ones it has to write. In process an
entry is the client's whole state, because this process plays the client; on a network it is the part that the client
shares with the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import jax.numpy as jnp
from jax import Array

from fedstein.federation.spill_cache import SpillCache
from fedstein.federation.wire_form import Origin
from fedstein.inference.sites.base import Arrays


class SharedPart(Mapping[str, Array]):
    """The arrays of a state that the server has accepted, read from the state when they are asked for."""

    def __init__(self, state: Mapping[str, Array], names: tuple[str, ...]):
        self._state, self._names = state, names

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._state[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class SiteTable(Mapping[int, Mapping[str, Array]]):
    """Client id -> state, for the clients that have trained."""

    def __init__(
        self,
        shared: tuple[str, ...],
        cache: SpillCache | None = None,
        entries: Mapping[int, Mapping[str, Array]] | None = None,
        origins: Mapping[int, Origin] | None = None,
    ):
        """
        Args:
            shared: The arrays of a state that the server has accepted and that methods may read.
            cache: Keeps states within a budget of memory; None keeps all of them in memory.
            entries: States that are already in the cache.
            origins: The messages that states were decoded from, if they take fewer bytes than the states.
        """
        self.shared, self.cache = shared, cache or SpillCache()
        self._entries, self.origins = dict(entries or {}), dict(origins or {})

    def __getitem__(self, client: int) -> Mapping[str, Array]:
        return self._entries[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def accepted(self) -> Mapping[int, Mapping[str, Array]]:
        """Return, for every client that has trained, the arrays that it shares with the server. Methods read these."""
        return {client: SharedPart(state, self.shared) for client, state in self._entries.items()}

    def replace(
        self, states: Mapping[int, Mapping[str, Array]], origins: Mapping[int, Origin] | None = None
    ) -> SiteTable:
        """Return a table in which these states replace the old states of their clients.

        Args:
            states: Whole states by client.
            origins: The messages that they were decoded from, if these are known.

        Returns:
            The new table; this one stays as it is.
        """
        fresh = {client: self.cache.keep(state) for client, state in states.items()}
        others = {client: origin for client, origin in self.origins.items() if client not in states}
        return SiteTable(self.shared, self.cache, {**self._entries, **fresh}, {**others, **(origins or {})})

    def renew(self, arrays: Mapping[int, Arrays], origins: Mapping[int, Origin] | None = None) -> SiteTable:
        """Return a table in which arrays that the server has computed replace some arrays of clients' states.

        Args:
            arrays: The new arrays by client.
            origins: The messages that the new states came from, if these are known.

        Returns:
            The new table; this one stays as it is.
        """
        # JAX arrays, like all arrays of a state: with NumPy arrays the programs would be compiled a second time.
        fresh = {
            client: {**self._entries[client], **{name: jnp.asarray(array) for name, array in new.items()}}
            for client, new in arrays.items()
        }
        return self.replace(fresh, origins)

    def without(self, client: int) -> SiteTable:
        """Return a table without the client."""
        entries, origins = ({k: v for k, v in each.items() if k != client} for each in (self._entries, self.origins))
        return SiteTable(self.shared, self.cache, entries, origins)  # type: ignore[arg-type]

    def changed_since(self, earlier: SiteTable | None) -> list[int]:
        """The clients whose states differ from those of the earlier table, sorted."""
        known = earlier._entries if earlier is not None else {}
        return sorted(client for client, state in self._entries.items() if known.get(client) is not state)
