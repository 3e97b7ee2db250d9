"""``fedsage federation service``: a unit for systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsage.cli.federation.run import needs_nvflare
from fedsage.cli.options import KitFolder
from fedsage.cli.progress import say

app = typer.Typer()


@app.command()
def service(
    kit: KitFolder,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="start with the machine, as this user"),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", show_default=False, help="where to write it (default: here)"
        ),
    ] = Path(),
) -> None:
    """Write a systemd unit that keeps the server or an owner running."""
    needs_nvflare()
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.processes.service import unit_name, unit_of

    opened = open_kit(kit)
    text, name = unit_of(opened, user), unit_name(opened)
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_text(text)
    print(out / name)
    as_root, whose = ("sudo ", "") if user else ("", "--user ")
    place = "/etc/systemd/system" if user else "~/.config/systemd/user"
    say(f"Stop {opened.name} if it is running, then:")
    say(f"  {as_root}cp {out / name} {place}/")
    say(f"  {as_root}systemctl {whose}daemon-reload")
    say(f"  {as_root}systemctl {whose}enable --now {name}")
    if not user:
        say("  loginctl enable-linger    # so that it runs while you are logged out")
