"""``fedsage completion``: a script that makes a shell complete fedsage's words."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fedsage.errors import ConfigError, nearest

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FEDSAGE_COMPLETE"  # by which the script asks for words


def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL",
            help="bash, zsh or fish",
            autocompletion=lambda: list(SHELLS),
        ),
    ],
) -> None:
    """Print a completion script for your shell.

    bash: add  eval "$(fedsage completion bash)"  to ~/.bashrc

    zsh: add  eval "$(fedsage completion zsh)"  to ~/.zshrc, after compinit

    fish: fedsage completion fish > ~/.config/fish/completions/fedsage.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in SHELLS:
        raise ConfigError(f"No completion for '{shell}'.{nearest(shell, SHELLS)}")
    print(get_completion_script(prog_name="fedsage", complete_var=VARIABLE, shell=shell))


def answer_shells() -> None:
    """Teach the command line to answer the scripts, where one of them is asking."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
