"""``fedsage federation status``: who is there, what runs, who is waited for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedsage.cli import options, output
from fedsage.cli.federation.run import needs_nvflare
from fedsage.readable import counted, size

if TYPE_CHECKING:
    from fedsage.federation.status.status import OwnerStatus, Status


def status(
    kit: Annotated[
        Path, typer.Argument(metavar="KIT", help="folder of a party's startup kit")
    ] = Path(),
    watch: Annotated[
        bool, typer.Option("--watch", help="keep showing it, until Ctrl-C")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show who is connected, what is running and who is waited for."""
    needs_nvflare()
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.status.from_kit import status_of
    from fedsage.federation.status.from_kit import watch as watched

    opened = open_kit(kit)
    if watch:
        show_each(watched(opened), json)
    elif json:
        output.print_json(asdict(status_of(opened)))
    else:
        print("\n".join(lines_of(status_of(opened))))


def show_each(found: Iterator[Status], as_json: bool) -> None:
    """Show every status in place of the one before; as JSON, one a line."""
    with contextlib.suppress(KeyboardInterrupt):
        if as_json:
            for one in found:
                print(json.dumps(asdict(one)), flush=True)
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            for one in found:
                live.update(Text("\n".join(lines_of(one))), refresh=True)


def lines_of(found: Status) -> list[str]:
    """A status in plain words."""
    process = f" (process {found.process})" if found.process else ""
    lines = [f"{found.party}{process if found.role == 'owner' else ''}"]
    lines.append(f"server: {found.server}{process if found.role == 'server' else ''}")
    if found.note:
        lines.append(found.note)
    width = max(map(len, found.owners), default=0)
    running = found.run is not None
    for name, one in found.owners.items():
        lines.append(f"  {name:<{width}}  {words_of(one, running)}")
    lines += run_lines(found)
    lines.append(f"disk: {size(found.disk_free_bytes)} free here")
    if found.certificate_days is not None:
        from fedsage.federation.kits.certificates import SOON

        soon = ": renew it soon" if found.certificate_days <= SOON else ""
        days = counted(max(0, found.certificate_days), "day")
        lines.append(f"certificate: valid for {days}{soon}")
    return lines


def run_lines(found: Status) -> list[str]:
    """What runs, and who is waited for."""
    if found.run is None:
        return ["no run"] if found.server == "up" else []
    done = f", round {found.round}" if found.round else ""
    total = f" of {found.rounds}" if done and found.rounds else ""
    lines = [f"run {found.run}: {found.phase}{done}{total}"]
    if found.decisions:
        return [*lines, found.decisions]
    if found.exchange and found.exchange_seconds is not None:
        answered = ", ".join(found.answered) or "nobody yet"
        ago = seconds(found.exchange_seconds)
        lines.append(f"last exchange: {found.exchange}, {ago} ago, answered by {answered}")
    if found.waiting_for and found.waiting_seconds is not None:
        left = found.deadline_seconds
        limit = f"; for {seconds(left)} more" if left is not None else ""
        who, since = ", ".join(found.waiting_for), seconds(found.waiting_seconds)
        lines.append(f"waiting for {who}, for {since} now{limit}")
    return lines


def words_of(one: OwnerStatus, running: bool) -> str:
    """One owner in plain words."""
    if one.seconds is None:
        return "not connected"
    state = "connected" if one.connected else "gone"
    words = f"{state} for {seconds(one.seconds)}"
    if running:
        words += ", in the run" if one.in_run else ", not in the run"
    if one.last_answer_seconds is not None:
        words += f", last answer {seconds(one.last_answer_seconds)} ago"
    return words


def seconds(count: float) -> str:
    """Seconds in a readable unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if count >= 2 * length:
            return f"{count / length:.0f} {unit}"
    return f"{count:.0f} s" if count >= 10 else f"{count:.1f} s"
