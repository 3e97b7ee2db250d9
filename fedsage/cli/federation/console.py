"""``fedsage federation console``: a page for the people of a party."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedsage.cli.federation.run import needs_nvflare
from fedsage.cli.progress import say
from fedsage.errors import ConfigError

app = typer.Typer()


@app.command()
def console(
    folder: Annotated[
        Path | None, typer.Argument(metavar="KIT", help="folder of a party's startup kit")
    ] = None,
    kit: Annotated[Path | None, typer.Option(metavar="KIT", help="the same, as a flag")] = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=65535, show_default=False, help="port (default: a free one)"
        ),
    ] = 0,
    browse: Annotated[
        bool, typer.Option("--browse", help="also open the page in a browser")
    ] = False,
) -> None:
    """Serve a page on this machine: what runs, what has left, and what to decide."""
    needs_nvflare()
    from fedsage.federation.console.server import Console
    from fedsage.federation.kits.kit import open_kit

    given = kit or folder
    if given is None:
        raise ConfigError("No kit was given. Name the folder of a party's startup kit.")
    try:
        made = Console(open_kit(given), port)
    except OSError as error:
        raise ConfigError(
            f"Port {port} cannot be used ({error.strerror}). Choose another with --port."
        ) from None
    with made as server:
        print(server.address, flush=True)
        say("Only this machine can open it. Keep the address to yourself; Ctrl-C ends it.")
        if browse:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("The page is closed. What is running goes on.")
