"""A node's private state on its own disk: the site that the server accepted last, and one that is pending.

A node that has trained writes its new site as *pending*. Every request names the receipt of the update that the server
accepted last. If it is the receipt of the pending site, the pending site becomes the committed one. If it is the
receipt of the committed site, that site stays. Otherwise the node replies that it has neither. So a node's site always
agrees with what the server accepted, no matter when either side is killed. Files are replaced atomically and contain
their run, client, round and checksum. A file that is damaged or belongs to another run is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from fedstein.errors import FedsteinError, InputError
from fedstein.federation.wire_form import PREFIX, ROUNDS
from fedstein.files import folder_lock, unpack, write_bytes
from fedstein.flower.messages import digest
from fedstein.inference.sites.base import Arrays

FORMAT = "fedstein state 1"
UPDATE = PREFIX + "update/"  # prefix of the update's arrays in a site that is stored as encoded messages
NOTHING = ""  # the receipt of a client of which the server has accepted no update


class OutOfSync(FedsteinError):
    """The node does not have the site that the server accepted last."""


class Kept(NamedTuple):
    """The content of one file: the result of a round, a digest of its input, and the receipt that the server got."""

    round: int
    receipt: str
    asked: str  # digest of the input
    state: Arrays
    update: Arrays


class Store:
    """The files of one run in a node's state folder."""

    def __init__(self, folder: Path, run: str, client: int):
        self.folder, self.run, self.client = folder / run, run, client
        self.committed_file = self.folder / "committed.safetensors"
        self.pending_file = self.folder / "pending.safetensors"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Handle one request at a time: a repeated request waits until the first one is done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.folder, wait=True):
            yield

    def sync(self, receipt: str, restored: Kept | None = None, for_good: bool = True) -> Arrays | None:
        """Find the site that the server accepted last. With ``for_good``, it becomes the committed one.

        A pending site that was not accepted stays, in case the request is repeated.

        Args:
            receipt: The receipt of the update that the server accepted last; empty if there is none.
            restored: The site that the request contains, if the node had lost it.
            for_good: Whether the server's checkpoint has the accepted update. If it does not, the previous site is kept
                too, because a server that is killed now continues from it.

        Returns:
            The site of that receipt; None if the receipt is empty.

        Raises:
            OutOfSync: The node has no site of that receipt.
            InputError: A file is damaged or belongs to another run.
        """
        committed = self.read(self.committed_file)
        if receipt == (committed.receipt if committed else NOTHING):
            return committed.state if committed else None
        pending = self.read(self.pending_file)
        if pending and pending.receipt == receipt:
            if for_good:
                os.replace(self.pending_file, self.committed_file)
            return pending.state
        if restored is not None and restored.receipt == receipt:
            self.write(self.committed_file, restored)
            return restored.state
        have = f"that of round {committed.round}" if committed else "none"
        raise OutOfSync(f"the server accepted another site than this node has: here is {have}")

    def pending(self) -> Kept | None:
        """Return the last update, which the server may not have accepted yet; None if there is none."""
        return self.read(self.pending_file)

    def write_pending(self, kept: Kept) -> None:
        """Write the last update."""
        self.write(self.pending_file, kept)

    def keep(self, name: str, arrays: Arrays, number: int = 0) -> None:
        """Keep arrays that the server sent, because later requests refer to them by their digest.

        Args:
            name: The file's name, without its ending.
            arrays: The arrays.
            number: The round.
        """
        self.write(self.folder / f"{name}.safetensors", Kept(number, digest(arrays), "", arrays, {}))

    def kept(self, name: str, receipt: str) -> Arrays | None:
        """The arrays that ``keep`` wrote under this name; None if their digest is different."""
        found = self.read(self.folder / f"{name}.safetensors")
        return found.state if found and found.receipt == receipt else None

    def write(self, path: Path, kept: Kept) -> None:
        """Write a file atomically, with its run, client, round, receipt and checksum."""
        known = {
            id(array) for array in kept.update.values()
        }  # a site that is stored as encoded messages already contains the update
        arrays = {
            **{f"state/{k}": a for k, a in kept.state.items() if not (k.startswith(UPDATE) and id(a) in known)},
            **{f"update/{k}": a for k, a in kept.update.items()},
        }
        plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        about = {
            "format": FORMAT,
            "run": self.run,
            "client": str(self.client),
            "round": str(kept.round),
            "receipt": kept.receipt,
            "asked": kept.asked,
            "sha256": digest(plain),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, save(plain, metadata=about))

    def read(self, path: Path) -> Kept | None:
        """Read and check a file.

        Args:
            path: The file.

        Returns:
            Its content; None if there is no file.

        Raises:
            InputError: It cannot be read, is damaged, or belongs to another run or client.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error}") from None
        arrays = unpack(content, path)
        try:
            length = int.from_bytes(content[:8], "little")
            about = json.loads(content[8 : 8 + length])["__metadata__"]
            found, number = (about["format"], about["run"], about["client"]), int(about["round"])
            receipt, asked, sha256 = str(about["receipt"]), str(about["asked"]), about["sha256"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is damaged or foreign: it does not say whose state it is ({error!r})") from None
        if found != (FORMAT, self.run, str(self.client)):
            raise InputError(
                f"{path} is foreign: expected {FORMAT!r} of run {self.run} and client {self.client}, got {found}; "
                "move it away, or give this node its own state-dir"
            )
        if digest(arrays) != sha256:
            raise InputError(f"{path} is damaged: its checksum does not match; restore it, or move it away")
        parts: dict[str, Arrays] = {"state": {}, "update": {}}
        for name, array in arrays.items():
            group, _, own = name.partition("/")
            if group not in parts or not own:
                raise InputError(f"{path} is foreign: it holds an array {name!r}; move it away")
            parts[group][own] = array
        if ROUNDS in parts["state"]:
            parts["state"] |= {UPDATE + name: array for name, array in parts["update"].items()}
        return Kept(number, receipt, asked, parts["state"], parts["update"])
