"""``fedsage federation approve`` and ``decline``: an owner decides on a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsage.cli.options import KitFolder
from fedsage.errors import ConfigError

if TYPE_CHECKING:
    from fedsage.federation.consent.decide import Asked

app = typer.Typer()


def shown(kit: Path) -> tuple[Path, Asked]:
    """The request that waits at an owner, printed; and the folder it is in."""
    from fedsage.federation.consent.decide import asked_of
    from fedsage.federation.kits.kit import open_kit

    opened = open_kit(kit)
    if opened.role != "owner":
        raise ConfigError(f"{opened.path} is the kit of the {opened.role}: only owners decide.")
    asked = asked_of(opened.ours)
    if asked is None:
        raise ConfigError(f"No run is waiting for the decision of {opened.name}.")
    print(f"Run {asked.terms.run} waits for {opened.name}.\n\n{asked.terms.leaves}")
    if asked.terms.settings["privacy"]["level"] == "private":
        from fedsage.federation.owner.prepare import cost_so_far  # takes time to load

        print(cost_so_far(opened))
    before = "the preset, as there was no run before" if asked.first else "your last run"
    print(f"Settings that differ from {before}:")
    print("\n".join(f"- {line}" for line in asked.differs) or "- none")
    print("You are asked because:\n" + "\n".join(f"- {line}" for line in asked.why))
    return opened.ours, asked


@app.command()
def approve(
    kit: KitFolder,
    always: Annotated[
        bool,
        typer.Option(
            "--always", help="also take part in later runs that differ only in name and seed"
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
) -> None:
    """Take part in the run that is waiting for you, after showing what would leave."""
    from fedsage.federation.consent.decide import decide

    folder, asked = shown(kit)
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("Nobody can answer here. Add --yes if you agree to the above.")
        if not typer.confirm("Take part?"):
            print("Nothing was decided. To refuse the run: fedsage federation decline")
            return
    decide(folder, asked.terms.sha256, True, always=always)
    later = " Later runs like it will not ask." if always else ""
    print(f"You take part in {asked.terms.run}.{later}")


@app.command()
def decline(
    kit: KitFolder,
    because: Annotated[
        str, typer.Option(metavar="WORDS", help="a reason, for the coordinator")
    ] = "",
) -> None:
    """Refuse the run that is waiting for you, and tell the coordinator why."""
    from fedsage.federation.consent.decide import decide

    folder, asked = shown(kit)
    decide(folder, asked.terms.sha256, False, because)
    print(f"You do not take part in {asked.terms.run}. The coordinator is told.")
