"""``fedsage federation pause``, ``continue``, ``leave``: an owner steers its part of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsage.cli.options import KitFolder
from fedsage.errors import ConfigError

app = typer.Typer()


def steered(kit: Path, wish: str) -> str:
    """Note what an owner wants of the run in progress; returns the run's name."""
    from fedsage.federation.kits.kit import open_kit
    from fedsage.federation.owner.pause import steer
    from fedsage.federation.status.from_kit import seen_here

    opened = open_kit(kit)
    if opened.role != "owner":
        raise ConfigError(
            f"{opened.path} is the kit of the {opened.role}: only owners pause or leave. The "
            "coordinator stops a run with 'fedsage federation abort'."
        )
    run = seen_here(opened).run
    if run is None:
        raise ConfigError("No run is in progress. 'fedsage federation status' shows it.")
    steer(opened.ours, run, wish)
    return run


@app.command()
def pause(kit: KitFolder) -> None:
    """Hold the run in progress at this owner, from the next round on."""
    run = steered(kit, "pause")
    print(
        f"{run} is paused here from the next round on; 'fedsage federation continue' ends it."
    )


@app.command("continue")
def go_on(kit: KitFolder) -> None:
    """Continue a run that this owner has paused."""
    print(f"{steered(kit, 'go on')} continues here.")


@app.command()
def leave(
    kit: KitFolder,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
) -> None:
    """Leave the run in progress after this round, for good."""
    if not yes and not typer.confirm("Leave the run? It cannot be joined again."):
        print("Nothing was changed.")
        return
    print(f"You leave {steered(kit, 'leave')} after this round.")
