"""Everything that is chosen by name: methods, ways of mending, backbones, rules, trackers.

Ours are registered by a decorator where they are written; a user's in their own file, which is
named instead of a name: ``path.py``. There is no other list of these names.
"""

from __future__ import annotations

import hashlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Generic, TypeVar

from fedsage.errors import ConfigError, nearest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One thing that can be chosen."""

    name: str
    thing: T
    about: str  # the first sentence of its docstring
    module: str  # where it was registered


class Registry(Generic[T]):
    """Everything of one kind that can be chosen.

    Args:
        what: What to call one of them in an error.
        decorator: How a user registers one.
        home: The module, or the package of the modules, where ours are registered.
        also: Another such package.
    """

    def __init__(self, what: str, decorator: str, home: str, also: str = "") -> None:
        self.what, self.decorator, self.home, self.also = what, decorator, home, also
        self.entries: dict[tuple[str, str], Entry[T]] = {}  # by the user's file and the name

    def add(self, name: str, thing: T, said_by: object) -> None:
        """Register ``thing`` under ``name``; ``said_by`` has the docstring, or is the words."""
        module = str(getattr(said_by, "__module__", self.home))
        said = said_by if isinstance(said_by, str) else said_by.__doc__ or ""
        about = said.strip().split("\n\n")[0]
        key = (module if module in {*RUNNING, *FILES.values()} else "", name)
        held = self.entries.get(key)
        if held is None and not module.startswith("fedsage."):
            held = self.ours().get(name)
        if held is not None and held.module != module:
            raise ConfigError(
                f"There is already a {self.what} called '{name}', in {held.module}. Choose "
                "another name."
            )
        self.entries[key] = Entry(name, thing, " ".join(about.split()), module)

    def named(self, thing: T) -> str:
        """A name for an object that was passed in; another object gets another name."""
        base = f"{thing.__module__}.{getattr(thing, '__qualname__', type(thing).__name__)}"
        names = [base, *(f"{base}-{k}" for k in range(2, 1000))]
        held = {name: entry.thing for (file, name), entry in self.entries.items() if not file}
        name = next(one for one in names if held.get(one, thing) is thing)
        self.entries["", name] = Entry(name, thing, "", base)
        return name

    def ours(self) -> Mapping[str, Entry[T]]:
        """What can be chosen by name alone."""
        for place in filter(None, (self.home, self.also)):
            home = import_module(place)
            for found in pkgutil.iter_modules(getattr(home, "__path__", ())):
                import_module(f"{place}.{found.name}")
        return {name: entry for (file, name), entry in self.entries.items() if not file}

    def find(self, name: str) -> Entry[T]:
        """The entry of that name, or the one that a user's file registers."""
        if is_file(name):
            module = run_file(name).__name__
            found = [one for (file, _), one in self.entries.items() if file == module]
            if len(found) != 1:
                raise ConfigError(
                    f"{name} should register one {self.what} with @fs.{self.decorator}, but "
                    f"registers {len(found) or 'none'}. docs/extending.md has an example."
                )
            return found[0]
        if name not in (known := self.ours()):
            raise ConfigError(f"Unknown {self.what} '{name}'.{nearest(name, known)}")
        return known[name]

    def __call__(self, name: str) -> Callable[[T], T]:
        """The decorator: ``@backbone("gat")``."""

        def register(thing: T) -> T:
            self.add(name, thing, thing)
            return thing

        return register


FILES: dict[tuple[Path, str], str] = {}  # users' files that were run: path, checksum → module
RUNNING: list[str] = []  # modules of users' files that are being run


def is_file(name: str) -> bool:
    """Whether something is named by its file."""
    return name.endswith(".py")


def checksum(path: str) -> str:
    """The SHA-256 of a user's file, by which parties know that they have the same one."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}). Check the path."
        ) from None


def at_fault(error: BaseException) -> str:
    """The last line of a user's file that an error came through; nothing if there is none."""
    ours = {str(path) for path, _ in FILES}
    frames = [f for f in extract_tb(error.__traceback__) if f.filename in ours]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def run_file(path: str) -> ModuleType:
    """Run a user's file, once for each content."""
    content = checksum(path)
    key = (Path(path).resolve(), content)
    if key in FILES:
        return sys.modules[FILES[key]]
    name = f"fedsage_file_{content[:12]}_{len(FILES)}"
    spec = spec_from_file_location(name, key[0])
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    RUNNING.append(name)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        where = f"{error.filename}, line {error.lineno}"
        raise ConfigError(f"{where}: {error.msg}. Correct the file.") from None
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        RUNNING.pop()
    FILES[key] = name
    return module
