"""The reference, made from the code: Python names, settings, commands, procedures, messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docstrings import in_markdown
from pydantic.fields import FieldInfo

sys.path.insert(0, str(Path(__file__).parent.parent.parent))  # this tree, whatever is installed

import fedsage
from benchmarks import protocol_tables
from fedsage.cli.main import app
from fedsage.config import PRESETS, Config, load_config

GROUPS = {  # title, what it is about, and the packages whose public names belong to it
    "graphs": (
        "Graphs and tables",
        "Load a graph, cut it into owners, read tables.",
        ("data", "graph", "tables"),
    ),
    "runs": ("Runs and results", "Train, follow, keep and load.", ()),
    "models": ("Models", "Trained classifiers, and backbones of your own.", ("models",)),
    "extending": (
        "Extending",
        "What a method, a way of mending or a rule of your own is made of.",
        ("methods", "mending", "protocol"),
    ),
}


def reference() -> Iterator[tuple[str, str]]:
    """Every page with its path."""
    yield "reference/index.md", contents()
    for group in GROUPS:
        yield f"reference/{group}.md", api(group)
    yield "reference/settings.md", settings()
    yield "reference/commands.md", commands()
    yield "reference/messages.md", messages()


def contents() -> str:
    """The page that leads to all others."""
    rows = ["| name | what it is |", "|---|---|"]
    for name in fedsage.__all__:
        one = getattr(fedsage, name)
        first = summary(one.__doc__ if callable(one) else f"A reply's use: {one.value}.")
        rows.append(f"| [`fs.{name}`][fedsage.{name}] | {first} |")
    return (
        "# Reference\n\nAll of it is made from the code when the site is built: "
        "[settings](settings.md) from the schema, [commands](commands.md) from their help, "
        "[procedures and messages](messages.md) from their declarations, and the Python names "
        "below from their docstrings. `import fedsage as fs` has these names and no others.\n\n"
        + "\n".join(rows)
        + "\n"
    )


def summary(docstring: str | None) -> str:
    """The first sentence, without markup."""
    text = " ".join((docstring or "").split("\n\n")[0].split())
    return in_markdown(text).replace("|", "\\|")


def api(group: str) -> str:
    """The public names of a few packages, by mkdocstrings."""
    title, about, _ = GROUPS[group]
    names = [name for name in fedsage.__all__ if group_of(name) == group]
    names.sort(key=lambda name: (name[0].isupper(), name))  # functions, then classes
    return f"# {title}\n\n{about}\n\n" + "\n".join(entry(name) for name in names)


def group_of(name: str) -> str:
    """The page that a public name is on; whatever belongs nowhere else has to do with runs."""
    package = fedsage.HOME[name].split(".")[1]
    return next((group for group, (_, _, those) in GROUPS.items() if package in those), "runs")


def entry(name: str) -> str:
    """One name; a constant, which has no docstring, by its value."""
    one = getattr(fedsage, name)
    if callable(one):
        return f"::: fedsage.{name}\n    options:\n      heading: fs.{name}\n"
    return f"## `fs.{name}` {{ #fedsage.{name} }}\n\n`{type(one).__name__}`: {one.value}.\n"


def settings() -> str:
    """Every setting, from the schema."""
    lines = [
        "# Settings",
        "",
        "`fedsage settings > my.toml` writes them all to a file for `--config`; `--set "
        'section.key=value` changes one; in Python, `fs.run(settings={"section": {"key": '
        "value}})`. An unknown key is refused with the nearest known one. The preset `best` is "
        "the default; where it differs from `paper`, its value is in bold.",
    ]
    for section, field in Config.model_fields.items():
        kind = field.annotation
        assert kind is not None
        lines += ["", f"## {section} {{ #{section} }}", "", (kind.__doc__ or "").strip(), ""]
        lines += ["| key | `paper` | `best` | values | meaning |", "|---|---|---|---|---|"]
        for key, one in kind.model_fields.items():  # type: ignore[attr-defined]
            lines.append(setting(section, key, one))
    return "\n".join(lines) + "\n"


def setting(section: str, key: str, field: FieldInfo) -> str:
    """One row of the table of a section."""
    paper, best = (
        shown(getattr(getattr(load_config(preset=preset), section), key)) for preset in PRESETS
    )
    ours = best if best == paper else f"**{best}**"
    cells = [f"`{section}.{key}`", paper, ours, values(section, key), field.description or ""]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(value: object) -> str:
    """A value as it stands in a TOML file."""
    if isinstance(value, tuple):
        return "`[" + ", ".join(str(one) for one in value) + "]`"
    if value == "":
        return '`""`'
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def values(section: str, key: str) -> str:
    """What a setting may be: words, or a type with its limits."""
    schema = Config.model_json_schema()
    kind = schema["properties"][section]
    name = (kind.get("$ref") or kind["allOf"][0]["$ref"]).split("/")[-1]
    return described(schema["$defs"][name]["properties"][key])


def described(one: dict[str, Any]) -> str:
    """A part of a JSON schema in words."""
    if "enum" in one:
        return ", ".join(f"`{word}`" for word in one["enum"])
    if one["type"] == "array":
        return "list of " + described(one["items"] if "items" in one else one["prefixItems"][0])
    kind = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "`true` or `false`",
    }
    limits = [
        f"{sign} {one[word]:g}"
        for word, sign in {
            "minimum": "≥",
            "exclusiveMinimum": ">",
            "maximum": "≤",
            "exclusiveMaximum": "<",
        }.items()
        if word in one
    ]
    return " ".join([kind[one["type"]], ", ".join(limits)]).strip()


def commands() -> str:
    """Every command with its arguments, from its help."""
    lines = [
        "# Commands",
        "",
        "Results go to stdout, progress to stderr. Exit code 0 is success, 2 an error in what "
        "was asked for, with one line that says what to do, and 130 an interruption.",
    ]
    for words, command in walk(typer.main.get_command(app), ["fedsage"]):
        anchor = "-".join(words)
        usage = " ".join(
            [*words, *(one.name.upper() for one in command.params if is_argument(one))]
        )
        lines += ["", f"## `{' '.join(words)}` {{ #{anchor} }}", "", summary_of(command), ""]
        lines += ["```text", f"{usage} [OPTIONS]", "```", ""]
        rows = [option(one) for one in command.params if not getattr(one, "hidden", False)]
        if rows:
            lines += ["| argument or option | meaning |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def walk(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    """All commands below one, with the words that call them."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, one in inner.items():
        if not one.hidden:
            yield from walk(one, [*words, name])


def is_argument(one: Any) -> bool:
    """An argument is given by its place, an option by its name."""
    return one.param_type_name == "argument"


def summary_of(command: Any) -> str:
    """A command's help as a paragraph or several."""
    return str(command.help or "").strip()


def option(one: Any) -> str:
    """An argument or option with its help, as a row."""
    name = one.name.upper() if is_argument(one) else ", ".join(one.opts)
    about = getattr(one, "help", None) or ""
    flag = f"`{name}`" + (" (required)" if one.required and not is_argument(one) else "")
    return f"| {flag} | {about.replace('|', chr(92) + '|').replace('<', '&lt;')} |"


def messages() -> str:
    """Procedures and messages, from their declarations."""
    table = protocol_tables.markdown
    return (
        "# Procedures and messages\n\nA *procedure* is what the server can ask of an owner; a "
        "*message* is a class, and nothing that is not one crosses an owner's boundary. "
        "[What crosses](../concepts/what-crosses.md) is the short version.\n\n"
        "## What leaves an owner\n\nIn the words that an owner reads before a run, with the "
        "settings of the preset `best`.\n\n"
        + table(protocol_tables.leaves())
        + "\n\n## Procedures\n\n"
        + table(protocol_tables.procedures())
        + "\n\n## Messages\n\n"
        + table(protocol_tables.messages())
        + "\n"
    )
