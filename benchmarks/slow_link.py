"""What a slow network costs: a federation on this machine whose owners have 10 Mbit/s.

    python benchmarks/slow_link.py
    python benchmarks/slow_link.py --shared --how full low-rank --json slow_link.json

Every owner reaches the server through a proxy on loopback, over a link of its own or, with
``--shared``, over the server's one link; the coordinator, who only watches, connects directly.
Seconds count from submitting a run to having its result, bytes from an owner's first
connection; TLS and NVFlare's own messages are among them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from links import Link, Network, Proxy, Way, connect_to
from rich.console import Console
from rich.table import Table

from fedsage.cli.options import config_from
from fedsage.cli.progress import announce_compiling, rounds
from fedsage.cli.run import num_rounds
from fedsage.config import Config
from fedsage.errors import FedSageError
from fedsage.federation.coordinator.rehearse import rehearsal
from fedsage.federation.coordinator.run_folder import federated_run
from fedsage.federation.kits.kit import Kit, federation_of
from fedsage.files import write_json
from fedsage.machine import commit, machine, versions

TODAY = "as it is"  # where no --how is given
WAYS: tuple[Way, ...] = ("up", "down")


@dataclass(frozen=True, slots=True)
class Figures:
    """One run over slow links."""

    how: str
    start_s: float  # certificates and processes, until all owners are connected
    wall_s: float  # from submitting the run to having its result
    seconds: dict[str, float]  # by phase, at the server
    link_bytes: dict[str, dict[Way, int]]  # that crossed the link, by owner, up and down
    message_bytes: dict[str, dict[str, int]]  # of our messages alone, by phase, up and down
    missed: int  # answers that did not come in time
    accuracy: float | None
    model_sha256: str

    def rows(self) -> dict[str, float | None]:
        """Figures for people, by name."""
        phases = {f"{phase}, s": self.seconds[phase] for phase in ("mending", "training")}
        found = {"whole run, s": self.wall_s, **phases, "starting before it, s": self.start_s}
        for way in WAYS:
            found[f"all owners {way}, MB"] = megabytes(self.link_bytes.values(), way)
            found[f"our messages {way}, MB"] = megabytes(self.message_bytes.values(), way)
        for way in WAYS:
            for name, counted in self.link_bytes.items():
                found[f"{name} {way}, MB"] = megabytes([counted], way)
        return found | {"accuracy at the owners": self.accuracy}


def megabytes(counts: Iterable[Mapping[Any, int]], way: Way) -> float:
    """The sum of one direction."""
    return sum(counted[way] for counted in counts) / 1e6


def measured(how: str, config: Config, asked: argparse.Namespace) -> Figures:
    """One federation from its start to its end."""
    proxies: dict[str, Proxy] = {}
    keep = asked.keep / how.replace(" ", "-") if asked.keep else None
    begin = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as scratch,
        closing(Network()) as network,
        rehearsal(config, keep, say, behind_links(network, asked, proxies)) as kit,
        rounds(how, num_rounds(config)) as on_line,
    ):
        ready = time.monotonic()
        folder = Path(scratch) / "run"
        of = federated_run(kit, config, folder, " ".join(sys.argv), False, on_line, say)
        end = time.monotonic()
        crossed = {name: dict(proxy.num_bytes) for name, proxy in proxies.items()}
    return Figures(
        how, ready - begin, end - ready, of.seconds, crossed, of.bytes, of.missed,
        of.accuracy["local"], of.model_sha256,
    )  # fmt: skip


def behind_links(
    network: Network, asked: argparse.Namespace, proxies: dict[str, Proxy]
) -> Callable[[Kit], None]:
    """For :func:`rehearsal`: every owner connects to a proxy, put into ``proxies``.

    Only the port changes: the host stays the one that the server's certificate names.
    """
    mbit, latency = asked.mbit, asked.latency_ms / 1000
    shared = Link(mbit, latency)

    def prepare(kit: Kit) -> None:
        if kit.role != "owner":
            return
        link = shared if asked.shared else Link(mbit, latency)
        proxies[kit.name] = network.proxy(link, federation_of(kit)["port"])
        connect_to(proxies[kit.name], kit.path)

    return prepare


def say(words: str) -> None:
    """Words on the way."""
    print(words, file=sys.stderr, flush=True)


def table(found: Sequence[Figures]) -> Table:
    """Runs beside each other, and how many times as much the first one takes."""
    made, rows = Table(""), [one.rows() for one in found]
    for one in found:
        made.add_column(one.how, justify="right")
    for one in found[1:]:
        made.add_column(f"{found[0].how} ÷ {one.how}", justify="right")
    for name, first in rows[0].items():
        ratios = [ratio(first, row[name]) for row in rows[1:]]
        made.add_row(name, *(number(row[name]) for row in rows), *ratios)
    return made


def number(value: float | None) -> str:
    """One place after the point; three where it is a share."""
    return "" if value is None else f"{value:,.1f}" if value > 1 else f"{value:.3f}"


def ratio(first: float | None, other: float | None) -> str:
    """How many times as much."""
    return f"{first / other:.2f}×" if first and other else ""


def title(config: Config, asked: argparse.Namespace) -> str:
    """What was run, and over what."""
    data, whose = config.data, "shared by all owners" if asked.shared else "for each owner"
    return (
        f"{config.run.method} on {data.dataset}, {data.owners} owners, preset "
        f"{config.run.preset}, {config.classifier.rounds_c} rounds\n{asked.mbit:g} Mbit/s each "
        f"way, {whose}; latency {asked.latency_ms:g} ms each way"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A federation whose owners have a slow link.")
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--owners", type=int, default=3)
    parser.add_argument("--method", default="fedsage+")
    parser.add_argument("--mbit", type=float, default=10.0, help="megabits a second, each way")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added each way")
    parser.add_argument("--shared", action="store_true", help="one link for all owners")
    parser.add_argument("--how", nargs="+", help="values of traffic.how, one run each")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", type=Path, help="keep kits and logs in this folder")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


def configs(asked: argparse.Namespace) -> dict[str, Config]:
    """The settings of every run, all checked before the first one starts."""
    given: dict[str, Any] = {"engine": "nvflare", "preset": "best", "method": asked.method}
    given |= {"dataset": asked.dataset, "owners": asked.owners}
    words = {how: [*asked.set, f"traffic.how={how}"] for how in asked.how or []}
    each = words or {TODAY: asked.set}
    return {how: config_from(assignments=more, **given) for how, more in each.items()}


def stop_once(number: int, frame: object) -> None:
    """Ctrl-C; a second one must not disturb the stopping of processes."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    asked, found = arguments(), list[Figures]()
    signal.signal(signal.SIGINT, stop_once)
    try:
        chosen = configs(asked)
        announce_compiling()  # or the first run would wait for it
        first = next(iter(chosen.values()))
        about = {"mbit": asked.mbit, "latency_ms": asked.latency_ms, "shared": asked.shared}
        about |= {"settings": first.model_dump(mode="json"), "commit": commit()}
        about |= {"versions": versions(), "machine": machine()}
        for how, config in chosen.items():
            found.append(measured(how, config, asked))
            if asked.json:  # after each run, as a later one may fail
                write_json(asked.json, {"runs": [asdict(one) for one in found]} | about)
    except FedSageError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Stopped, and so is every process that was started.")
    print(title(first, asked))
    Console(width=max(80, 30 + 22 * len(found))).print(table(found))


if __name__ == "__main__":
    main()
