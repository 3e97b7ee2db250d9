"""The page: what the runs found, from the headline to the command that repeats them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from fedsage.readable import counted, owners_of
from fedsage.report.about import earlier, facts, repeat
from fedsage.report.accuracy import accuracy, lead
from fedsage.report.audited import audited
from fedsage.report.blocks import Section
from fedsage.report.classes import classes
from fedsage.report.costs import costs
from fedsage.report.learned import confusions, curves, labels
from fedsage.report.mending import mending
from fedsage.report.owners import absences, is_federated, owners
from fedsage.report.read import Run, by_method
from fedsage.report.reliability import reliability


def page(runs: Sequence[Run]) -> str:
    """One self-contained HTML file."""
    groups = by_method(runs)
    where = dict.fromkeys(where_of(run.result) for run in runs)
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return str(
        template().render(
            title="; ".join(where),
            methods=list(groups),
            lead=lead(groups),
            about=[("graph", size_text(runs[0].result)), *facts(runs, made)],
            sections=sections_of(runs),
            style=asset("style.css"),
            script=asset("script.js"),
        )
    )


def sections_of(runs: Sequence[Run]) -> list[Section]:
    """All that can be said of these runs, in the order of the page."""
    groups = by_method(runs)
    sections = [accuracy(groups), earlier(runs), curves(groups), owners(groups), labels(groups),
                confusions(groups), classes(groups), reliability(groups), mending(groups),
                absences(runs), *audited(runs), costs(groups), repeat(runs)]  # fmt: skip
    return [section for section in sections if section is not None]


def template() -> Template:
    """The page's template; what it is given is text unless it says otherwise."""
    environment = Environment(
        loader=PackageLoader("fedsage.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html.jinja")


def asset(name: str) -> Markup:
    """A file of ours that goes into the page as it is."""
    place = files("fedsage.report") / "templates" / name
    return Markup(place.read_text(encoding="utf-8"))


def where_of(result: Mapping[str, Any]) -> str:
    """The graph and its owners."""
    return f"{result['dataset']}, {owners_of(result['owners'], result['partition'])}"


def size_text(result: Mapping[str, Any]) -> str:
    """The size of the graph, as far as it is known."""
    if "nodes" not in result["graph"]:  # a private run between machines
        return "a number of nodes that nobody was told, each with its owner"
    nodes = counted(result["graph"]["nodes"], "node")
    if is_federated(result):
        return f"{nodes}, each with its owner"
    links = counted(result["graph"]["links"], "link")
    missing = result["missing_links"]
    gone = "an unknown number" if missing is None else f"{missing:,}"
    return f"{nodes}, {links}, {gone} missing between owners"
