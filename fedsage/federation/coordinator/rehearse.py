"""A federation on this machine alone: real processes and certificates, then cleaned up."""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedsage.config import Config
from fedsage.data.load import load, owner_folders
from fedsage.data.npz import save_graph
from fedsage.errors import ConfigError
from fedsage.federation.consent.own_files import allow, files_of
from fedsage.federation.consent.policy import POLICY, permitting
from fedsage.federation.kits.kit import Kit
from fedsage.federation.kits.make import is_name, keep_secret, make_kits
from fedsage.federation.processes.start import await_all, start, stop
from fedsage.graph.partition import partition, with_splits
from fedsage.readable import counted


def as_made(kit: Kit) -> None:
    """Change nothing in a party's kit."""


@contextmanager
def rehearsal(
    config: Config,
    keep: Path | None,
    say: Callable[[str], None],
    prepare: Callable[[Kit], None] = as_made,
) -> Iterator[Kit]:
    """Cut the graph, make kits, start everyone; yields the coordinator's kit.

    ``prepare`` may change the kit of the server and of every owner before anyone starts.
    """
    with ExitStack() as stack:
        if keep is not None and keep.exists() and any(keep.iterdir()):
            raise ConfigError(f"--keep {keep} is not empty. Choose another folder.")
        scratch = Path(keep or stack.enter_context(tempfile.TemporaryDirectory()))
        data = owners_data(config, scratch / "data")
        port = free_port()
        owners = counted(len(data), "owner")
        say(f"making certificates for {owners}, a server on port {port} and you")
        made = make_kits(f"localhost:{port}", list(data), scratch / "kits")
        kits = {kit.name: kit for kit in made}
        parties = [kit for kit in kits.values() if kit.role != "coordinator"]
        for kit in parties:
            stack.callback(stop, kit)
            for file in files_of(config).values():
                allow(Path(file), kit.ours)
            if kit.role == "owner":  # all owners are the user here
                (kit.path / "local" / POLICY).write_text(permitting(config))
            if kit.role == "owner":
                keep_secret(kit, "")  # so that the model is that of a simulation
            prepare(kit)
        stack.enter_context(ended_by_signals())
        say("starting the server")
        start(kits["server"], None, say)
        say("starting the owners")
        for name, folder in data.items():
            start(kits[name], folder, say, wait=False)
        await_all([kits[name] for name in data])
        yield kits["coordinator"]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process through its clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {one: signal.signal(one, leave) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def owners_data(config: Config, folder: Path) -> dict[str, Path]:
    """A folder of data for every owner: their own, or parts of a graph.

    Owners are called as their folders are, since tables of links may name them so.
    """
    if given := owner_folders(config.data.dataset):
        names = [place.name for place in given]
        if not all(map(is_name, names)):
            names = [f"owner-{i}" for i in range(len(given))]
        return {name: place.resolve() for name, place in zip(names, given, strict=True)}
    data, seed = config.data, config.run.seed
    graph = load(data.dataset, **config.synthetic.model_dump())
    part = with_splits(partition(graph, data.owners, data.partition, seed), data.split)
    found = {}
    for i, subgraph in enumerate(part.subgraphs):
        split = part.split_of(i, data.train, data.val, seed)
        place = folder / f"owner-{i}"
        save_graph(
            subgraph, place / "graph.npz", train=split.train, val=split.val, test=split.test
        )
        found[f"owner-{i}"] = place
    return found


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
