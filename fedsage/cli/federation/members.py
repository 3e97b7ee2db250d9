"""``fedsage federation add-owner``, ``remove-owner``, ``renew`` and ``rotate-authority``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fedsage.cli.federation.run import needs_nvflare

app = typer.Typer()
Kits: TypeAlias = Annotated[
    Path,
    typer.Option(metavar="FOLDER", help="the folder that 'init' wrote, with its authority"),
]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="an owner's name")]


@app.command("add-owner")
def add(name: Name, kits: Kits) -> None:
    """Add an owner to a federation, and write its startup kit."""
    needs_nvflare()
    from fedsage.federation.kits.authority import add_owner

    kit = add_owner(kits, name)
    print(f"{kit.role:<12}{kit.path}")
    print(
        "Give the kit to its owner over a channel you trust: it holds a private key. Owners "
        "on other machines learn of the new one with the next run; copy federation.json of "
        "kits/server/fedsage to the server's machine now, so that it is let in."
    )


@app.command("remove-owner")
def remove(name: Name, kits: Kits) -> None:
    """Remove an owner from a federation; its certificate is refused from now on."""
    needs_nvflare()
    from fedsage.federation.kits.authority import remove_owner

    remove_owner(kits, name)
    print(
        f"{name} is no longer a member. The server refuses it at its next connection, from the "
        "next run on also where the kits are on other machines."
    )


@app.command()
def renew(kits: Kits) -> None:
    """Renew all certificates before they expire; nobody has to stop."""
    needs_nvflare()
    from fedsage.federation.kits.authority import renew as renew_all

    show_renewed(renew_all(kits))
    print("Old and new certificates fit each other: a party uses its new one when it restarts.")


@app.command("rotate-authority")
def rotate(kits: Kits) -> None:
    """Make a new authority; what the old one signed is refused once all have the new one."""
    needs_nvflare()
    from fedsage.federation.kits.authority import rotate_authority

    show_renewed(rotate_authority(kits))
    print("Old and new certificates do not fit each other: stop all parties, then start them.")


def show_renewed(folders: list[Path]) -> None:
    """Where the new certificates are."""
    for folder in folders:
        print(f"{folder.name:<12}{folder}")
    print(
        "Kits in the same folder have them already. For a kit on another machine, copy its "
        "files into the folder 'startup' of the kit; they are no secret."
    )
