"""``reproduce NAME``: run a study's cells, write its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedsage.errors import ConfigError, nearest
from fedsage.files import write_atomically, write_json
from fedsage.machine import commit, machine, versions
from fedsage.reproduce import links, neighgen_figures, privacy, studies
from fedsage.reproduce.cells import Cell, FinishedCell, run_cells, study_rows
from fedsage.reproduce.figures import save_figure
from fedsage.reproduce.studies import Options, RunCells, StudyOutput
from fedsage.reproduce.tables import Table, TableRow


@dataclass(frozen=True, slots=True)
class Study:
    """One table or figure of the paper."""

    place: str
    build: Callable[[Options, RunCells], StudyOutput]
    timed: bool = False  # shows seconds, so its runs must not slow each other down


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """The result of a study."""

    name: str
    tables: list[Table]
    rows: list[TableRow]  # one for every group of runs; the tables' own if nothing was run


STUDIES: dict[str, Study] = {
    "table-datasets": Study("Table 1", studies.table_datasets),
    "table-main": Study("Table 2", studies.table_main),
    "figure-alpha": Study("Fig. 3 (a)", studies.figure_alpha),
    "figure-hide-ratio": Study("Fig. 3 (b)", studies.figure_hide_ratio),
    "figure-labels": Study("Fig. 4", neighgen_figures.figure_labels),
    "figure-curves": Study("Fig. 5", neighgen_figures.figure_curves, timed=True),
    "figure-dgen": Study("Appendix, figure on dGen", neighgen_figures.figure_dgen),
    "table-fgen": Study("Appendix, table on fGen", neighgen_figures.table_fgen),
    "table-shared-neighgen": Study("Appendix, table on shared NeighGens",
                                   studies.table_shared_neighgen),
    "table-batch-size": Study("Appendix, table on batch sizes", studies.table_batch_size),
    "table-local-epochs": Study("Appendix, table on local epochs", studies.table_local_epochs),
    "gntk": Study("Sec. 6 and appendix: the generalization bound", neighgen_figures.gntk_bound),
    "privacy": Study("The open question at the end", privacy.privacy),
    "links": Study("Sec. 3.1, if owners know their links", links.links),
}  # fmt: skip


DRAWN = {name for name in STUDIES if name.startswith("figure")} | {
    "gntk",
    "privacy",
    "links",
}  # end in a picture


def study_named(name: str) -> Study:
    """The study of that name."""
    if name not in STUDIES:
        raise ConfigError(f"Unknown study '{name}'.{nearest(name, STUDIES)}")
    return STUDIES[name]


def make(
    name: str,
    options: Options,
    out: Path,
    on_cell: Callable[[int, int, Cell], None],
    jobs: int = 1,
) -> FinishedStudy:
    """Run what is missing, write ``NAME.md``, ``.csv``, ``.json``, ``.png``, ``.svg``."""
    study, ran = study_named(name), list[FinishedCell]()

    def run(cells: Sequence[Cell]) -> list[FinishedCell]:
        found = run_cells(cells, out / "cells", on_cell, min(jobs, 1) if study.timed else jobs)
        if not found:
            raise ConfigError(f"{out / 'cells'} holds no runs of {name}. Omit --kept.")
        ran.extend(found)
        return found

    output = study.build(options, run)
    out.mkdir(parents=True, exist_ok=True)
    quick = "Quick: one seed, few rounds. Not to be quoted.\n\n" if options.quick else ""
    head = f"# {name}\n\n{study.place} of the paper; preset {options.preset}.\n\n{quick}"
    text = head + "\n".join(table.markdown() for table in output.tables)
    if output.panels:
        text += f"\n![{name}]({name}.svg)\n"
    write_text(out / f"{name}.md", text)
    for k, table in enumerate(output.tables):
        write_text(out / (f"{name}.csv" if k == 0 else f"{name}-{k + 1}.csv"), table.csv())
    about = {"name": name, "place": study.place, "preset": options.preset}
    made = {"versions": versions(), "commit": commit(), "machine": machine()}
    size = {"quick": options.quick, "seeds": len(options.all_seeds)}
    tables = {"tables": [asdict(table) for table in output.tables]}
    runs = {"runs": [one.brief() for one in ran]}
    write_json(out / f"{name}.json", about | size | made | tables | runs)
    assert bool(output.panels) == (name in DRAWN)
    if output.panels:
        save_figure(output.panels, out / name)
    shown = [row for table in output.tables for row in table.rows]
    return FinishedStudy(name, output.tables, study_rows(ran, output.paper) if ran else shown)


def write_contents(out: Path, names: Sequence[str]) -> Path:
    """Write a table of contents of ``out``."""
    lines = ["# The paper, table by table", ""]
    lines += [f"- [{name}]({name}.md): {STUDIES[name].place}" for name in names]
    path = out / "README.md"
    write_text(path, "\n".join(lines) + "\n")
    return path


def write_text(path: Path, text: str) -> None:
    """Write all of the text or none of it."""
    write_atomically(path, lambda file: file.write(text.encode()))
