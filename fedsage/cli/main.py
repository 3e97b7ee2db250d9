"""``fedsage COMMAND``: the commands, and how errors leave the program.

Exit code 0 is success; 2 a user's error, with one line on stderr and no traceback; 130 an
interruption. Results go to stdout, progress to stderr.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version as package_version
from typing import Annotated, Any, NoReturn

import typer

from fedsage.cli import (
    arena,
    audit,
    bench,
    completion,
    data,
    methods,
    predict,
    report,
    reproduce,
    run,
    settings,
    split,
)
from fedsage.cli.federation import commands as federation
from fedsage.cli.run import Interrupted
from fedsage.errors import DataErrors, FedSageError, nearest

# Found through typer, because click is a package of its own only in some versions.
ClickException: type[BaseException] = typer.BadParameter.__mro__[2]
NEW_OBJECTS = 100_000  # between two looks of the garbage collector
HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="fedsage",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)
VERBS: dict[str, Callable[..., None]] = {
    "run": run.run,
    "compare": run.compare,
    "arena": arena.arena,
    "methods": methods.methods,
    "predict": predict.predict,
    "report": report.report,
    "reproduce": reproduce.reproduce,
    "split": split.split,
    "settings": settings.settings,
    "bench": bench.bench,
    "audit": audit.audit,
    "completion": completion.completion,
}
for verb, function in VERBS.items():
    app.command(verb)(function)
app.add_typer(data.app, name="data")
app.add_typer(federation.app, name="federation")


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Subgraph federated learning for owners who each hold a part of one graph."""
    if version:
        print(f"fedsage {package_version('fedsage')}")
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line and exit.

    Python's collector looks for garbage after every 700 new objects. Imported modules are
    hundreds of thousands, and none of them is garbage: a tenth of a short run.
    """
    gc.set_threshold(NEW_OBJECTS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals that cannot show ΔE
    leave(exit_code())


def leave(code: int) -> NoReturn:
    """End the program, at once if no thread is left to wait for.

    Python would look through all objects once more, then take apart everything that was
    imported: a fifth of a second.
    """
    if threading.active_count() > 1:
        gc.freeze()
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def exit_code() -> int:
    """Run the command line and turn every outcome into an exit code."""
    completion.answer_shells()
    command = typer.main.get_command(app)
    without_types(command)
    try:
        code = int(command(standalone_mode=False, prog_name="fedsage") or 0)
        sys.stdout.flush()  # a full disk must not look like success
    except Interrupted as words:
        print(words, file=sys.stderr)
        return 130
    except DataErrors as errors:
        return refused(errors.in_one_line)
    except FedSageError as error:
        return refused(str(error))
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return 2
        return refused(usage_line(error))
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        return unread()
    except SystemExit as left:  # Typer's answer to a closed pipe
        if isinstance(left.__context__, BrokenPipeError):
            return unread()
        raise
    except OSError as error:
        return refused(
            f"{error.strerror or error}: {error.filename or 'a file'} could not be read or "
            "written. Check the path, the permissions and the free disk space."
        )
    except MemoryError as error:
        return refused(f"Out of memory ({error}). Use a smaller graph, batch or model.")
    if code == 130:
        print("Interrupted.", file=sys.stderr)
    return code


def unread() -> int:
    """The reader of our output has closed it, as ``head`` does: that is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def without_types(command: Any) -> None:
    """Show no types in the help: ``--force``, not ``--force <bool>``; KIT, not KIT <path>."""
    for option in command.get_params(command.context_class(command, **HELP)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
        elif option.param_type_name == "argument":  # whose metavar is its name
            option.display_type_rich = lambda ctx: None
        if "--help" in option.opts:
            option.help = "show this help"
    for below in getattr(command, "commands", {}).values():
        without_types(below)


def refused(message: str) -> int:
    """One line on stderr."""
    print("Error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def usage_line(error: BaseException) -> str:
    """What was wrong with the command, and where to find help."""
    message = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "fedsage"
    if message.startswith("No such command"):
        name = message.split("'")[1]
        known = context.command.commands if context else VERBS
        message = f"No such command '{name}'.{nearest(name, known)}"
    end = "" if message.endswith(("?", ".")) else "."
    return f"{message}{end} See '{path} --help'."
