"""What an owner keeps of known links from run to run: what it gave, asked for, and got.

Sums over other groups of the same nodes, or over the same group when rows have changed, could
be subtracted from each other. So a node is in one sum of a receiver for all time: a later run
asks for new nodes alone, and owners refuse to show a node again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_bytes

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from fedsage.errors import ConfigError, PrivacyError
from fedsage.files import write_atomically
from fedsage.mending.links.received import HeldMeans, Ids
from fedsage.models.parameters import Parameters

GAVE, ASKED, GOT = "gave", "asked", "got"  # kinds of entries: KIND/RUN/…
MARK = "mark"  # a checksum of what was given: KIND/RUN/RECEIVER
SEVERAL = "several"  # nodes that other owners hold, too: KIND/RUN/
SECRET = "secret//"  # of the numbers that neighbors of shared nodes have


class LinkMemory:
    """Entries by run, in one file; ids are fingerprints.

    Args:
        path: The file; None to forget when the process ends, as in simulations.
        run: The name of this run, whose own entries do not stand in its way.
    """

    def __init__(self, path: Path | None, run: str) -> None:
        self.path, self.run = path, run
        self.entries: Parameters = {}
        if path is not None and path.exists():
            try:
                self.entries = safetensors.torch.load(path.read_bytes())
            except (OSError, SafetensorError) as error:
                raise ConfigError(
                    f"{path.name} cannot be read ({error}), so it is not known which sums "
                    "others have got. Restore it from a copy."
                ) from None

    def before(self, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
        """The entries of a kind from other runs: what follows the run's name, and the value."""
        for name, value in self.entries.items():
            found, run, rest = name.split("/", 2)
            if found == kind and run != self.run:
                yield rest, value

    def ids_before(self, kind: str, whose: str) -> Ids:
        """All ids of such entries that belong to one owner."""
        found = [value.numpy() for rest, value in self.before(kind) if rest == whose]
        return np.concatenate([*found, np.empty(0, np.int64)])

    def held(self, width: int) -> HeldMeans:
        """All that other runs got."""
        found = HeldMeans.nothing(width)
        parts: dict[str, Parameters] = {}
        for rest, value in self.before(GOT):
            run, name = rest.split("/", 1)
            parts.setdefault(run, {})[name] = value
        for one in map(HeldMeans.from_tensors, parts.values()):
            if one.means.shape[1] != width:
                raise ConfigError(
                    f"Earlier runs got means of {one.means.shape[1]} features, this one has "
                    f"{width}. Mend in another way (mend.how), or keep to the schema."
                )
            found = found.joined(one)
        return found

    def keep(self, entries: Parameters) -> None:
        """Add entries of this run; they are on disk when this returns."""
        self.entries = self.entries | entries
        if self.path is not None:
            packed = safetensors.torch.save(self.entries)
            write_atomically(self.path, lambda file: file.write(packed))

    def secret(self) -> bytes:
        """The same in all runs."""
        if SECRET not in self.entries:
            drawn = np.frombuffer(token_bytes(32), np.uint8).copy()
            self.keep({SECRET: torch.from_numpy(drawn)})
        return self.entries[SECRET].numpy().tobytes()

    def several(self, ids: Ids) -> Ids:
        """Other owners hold these nodes, too; gives all of which that was ever seen."""
        found = [v.numpy() for name, v in self.entries.items() if name.startswith(SEVERAL)]
        everything = np.unique(np.concatenate([*found, ids]))
        if len(ids):
            self.keep({f"{SEVERAL}/{self.run}/": torch.from_numpy(everything)})
        return everything

    def gave(self, receiver: str, ids: Ids, mark: bytes, again: bool) -> None:
        """Nodes of this owner are in sums of that receiver; refuses other sums over them.

        Args:
            receiver: Its name.
            ids: The nodes.
            mark: A checksum of the sums.
            again: The owner still has what it showed in this run, and nothing differs.
                Without that, a run of this name may show what it showed before, and no more:
                a server can give two runs one name.
        """
        shown = self.entries.get(name := f"{MARK}/{self.run}/{receiver}")
        other = shown is not None and shown.numpy().tobytes() != mark and not again
        if other or np.isin(ids, self.ids_before(GAVE, receiver)).any():
            raise PrivacyError(
                f"Owner {receiver} asked for nodes that it got sums of in an earlier run, and "
                "the difference could show rows. It was sent nothing."
            )
        entry = torch.from_numpy(np.frombuffer(mark, np.uint8).copy())
        self.keep({name: entry} | self.with_more(f"{GAVE}/{self.run}/{receiver}", ids))

    def asked(self, ids: Ids) -> None:
        """This owner asks for sums that have these remote nodes in them."""
        self.keep(self.with_more(f"{ASKED}/{self.run}/", ids))

    def with_more(self, name: str, ids: Ids) -> Parameters:
        """An entry with more nodes: those of the same run before a restart stay in it."""
        before = self.entries[name].numpy() if name in self.entries else ids
        return {name: torch.from_numpy(np.union1d(before, ids))}

    def got(self, held: HeldMeans) -> None:
        """What came of it."""
        parts = held.tensors()
        self.keep({f"{GOT}/{self.run}/{self.run}/{name}": parts[name] for name in parts})
