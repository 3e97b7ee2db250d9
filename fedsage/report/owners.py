"""The sections on owners: who holds what, how each does, and who was missing when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsage.readable import counted
from fedsage.report.bars import Series, bar_chart, bar_sheet, heat_map, heat_sheet
from fedsage.report.blocks import (
    Block,
    Figure,
    Grid,
    Section,
    Sheet,
    Table,
    Value,
    short,
    spread,
)
from fedsage.report.dots import Dots, dot_chart, dot_keys
from fedsage.report.marks import bar_key, method_color
from fedsage.report.read import Groups, Run


def is_federated(result: Mapping[str, Any]) -> bool:
    """Whether owners were on separate machines and reported only what they must."""
    return not any(one["labels"] for one in result["per_owner"])


def owner_name(run: Run, owner: int) -> str:
    """An owner's number as in the paper, and its name if it has one."""
    lines = run.result["per_owner"]
    name = lines[owner].get("name") if owner < len(lines) else None
    return f"D{owner} {name}" if name else f"D{owner}"


def owners(groups: Groups) -> Section:
    """Sizes and labels of every owner, and the accuracy of every owner in every run."""
    runs = [run for each in groups.values() for run in each]
    several = [run for run in runs if len(run.result["per_owner"]) > 1]
    run = (several or runs)[0]
    seed = run.result["seed"]
    blocks: list[Block] = []
    if is_federated(run.result):
        note = "What owners told the server about themselves."
        blocks.append(told_by_owners(run))
    else:
        cut = f"Owners as cut with seed {seed}; another seed may cut the graph differently."
        note = "Owners as they came." if run.result["partition"] == "folders" else cut
        blocks += [Grid([sizes_chart(run), labels_chart(run)]), holdings(run)]
    return Section("Owners", note, [*blocks, *per_owner(groups)])


def told_by_owners(run: Run) -> Table:
    """The little that is known of owners on other machines."""
    rows = [
        (
            owner_name(run, i),
            f"{one['nodes']:,}",
            f"{one['test'] or 0:,}",
            spread([one["local"]]),
        )
        for i, one in enumerate(run.result["per_owner"])
    ]
    columns = ("owner", "nodes", "test nodes", "local accuracy")
    return Table("Owners", columns, rows)


def sizes_chart(run: Run) -> Figure:
    """Nodes and links of every owner."""
    lines = run.result["per_owner"]
    names = [owner_name(run, i) for i in range(len(lines))]
    series = [
        Series("nodes", "q0", [one["nodes"] for one in lines]),
        Series("links", "q1", [one["links"] for one in lines]),
    ]
    missing = run.result["missing_links"]
    gone = "An unknown number of links" if missing is None else counted(missing, "link")
    verb = "is" if missing == 1 else "are"
    says = f"{gone} between owners {verb} missing: nobody holds them."
    keys = [bar_key(one.name, one.color) for one in series]
    picture = bar_chart(names, series, "count")
    return Figure("Size of each owner", picture, says, bar_sheet("owner", names, series), keys)


def labels_chart(run: Run) -> Figure:
    """Labelled nodes of every class at every owner."""
    lines = run.result["per_owner"]
    names = [owner_name(run, i) for i in range(len(lines))]
    classes = [short(name) for name in run.result["class_names"]]
    table = [one["labels"] for one in lines]
    picture = heat_map(table, names, classes, "owner", "class", "q0", relative=True)
    skews = [one["skew"] for one in lines]
    most = max(range(len(lines)), key=lambda i: skews[i])
    says = (
        f"The shade is the share of the owner's labels. {names[most]} differs most from all "
        f"owners together: label skew {skews[most]:.2f} on a scale from 0 to 1."
    )
    return Figure(
        "Labels of each owner", picture, says, heat_sheet(table, names, classes, "owner")
    )


def holdings(run: Run) -> Table:
    """Every owner at a glance."""
    rows = [
        (owner_name(run, i), f"{one['nodes']:,}", f"{one['links']:,}", f"{one['train']:,}",
         f"{one['val']:,}", f"{one['test']:,}", f"{one['skew']:.2f}")
        for i, one in enumerate(run.result["per_owner"])
    ]  # fmt: skip
    columns = ("owner", "nodes", "links", "training nodes", "validation nodes", "test nodes",
               "label skew")  # fmt: skip
    says = "Label skew: total variation from all owners' labels together, from 0 to 1."
    return Table("What owners hold", columns, rows, says=says, long=len(rows) > 14)


def per_owner(groups: Groups) -> list[Block]:
    """Accuracy at every owner in every run: dots, and a table of all runs."""
    dots, rows, sheet = [], [], list[list[Value]]()
    most = max(len(run.result["per_owner"]) for runs in groups.values() for run in runs)
    for k, (method, runs) in enumerate(groups.items()):
        each = []
        for run in runs:
            local = [one["local"] for one in run.result["per_owner"]]
            seed = run.result["seed"]
            for i, value in enumerate(local):
                if value is not None:
                    each.append((f"seed {seed}, {owner_name(run, i)}", value))
                    sheet.append([method, seed, owner_name(run, i), value])
            cells = [spread([value]) for value in local] + ["–"] * (most - len(local))
            rows.append((f"{method}, seed {seed}", *cells))
        if each:
            middle = sum(value for _, value in each) / len(each)
            dots.append(Dots(method, method_color(k), each, middle))
    if not dots:
        return []
    picture, axis = dot_chart(dots, "local accuracy")
    low, high = worst_and_best(dots)
    says = f"Between {low:.4f} and {high:.4f}, depending on the owner. {axis}"
    names = [name_in_all(groups, i) for i in range(most)]
    data = Sheet(("method", "seed", "owner", "local accuracy"), sheet)
    keys = dot_keys(dots, "one owner in one run")
    table = Table("Local accuracy of every owner in every run", ("run", *names), rows, data,
                  "Each owner's test nodes, classified on what that owner holds.",
                  long=len(rows) > 14)  # fmt: skip
    return [Grid([Figure("Local accuracy by owner", picture, says, data, keys)]), table]


def name_in_all(groups: Groups, owner: int) -> str:
    """An owner's name, if it is the same in all runs; else its number."""
    runs = [run for each in groups.values() for run in each]
    holds = [run for run in runs if owner < len(run.result["per_owner"])]
    names = {owner_name(run, owner) for run in holds}
    return names.pop() if len(names) == 1 else f"D{owner}"


def worst_and_best(dots: Sequence[Dots]) -> tuple[float, float]:
    """The lowest and highest accuracy of any owner."""
    each = [value for one in dots for _, value in one.each]
    return min(each), max(each)


def absences(runs: Sequence[Run]) -> Section | None:
    """Which rounds went on without which owner, and why."""
    rows = [
        (run.result["method"], line["phase"], str(line["round"] + 1),
         owner_name(run, miss["owner"]), miss["procedure"], miss["why"])
        for run in runs
        for line in run.history
        for miss in line.get("without", [])
    ]  # fmt: skip
    if not rows:
        return None
    columns = ("method", "phase", "round", "without", "procedure", "why")
    note = "Owners that did not answer in time, or whose answer was refused."
    table = Table("Rounds without an owner", columns, rows, long=len(rows) > 14, text=True)
    return Section("Rounds without an owner", note, [table])
