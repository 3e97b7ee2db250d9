from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

import fedsage
from fedsage.cli.settings import read_assignments, read_toml, toml_lines
from fedsage.config import Config, load_config
from fedsage.errors import ConfigError


def test_a_misspelt_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(
        ConfigError, match=r"Unknown key .classifier.etta.\. Did you mean .eta."
    ):
        load_config({"classifier": {"etta": 0.1}})


def test_a_misspelt_section_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'classifier'"):
        load_config({"clasifier": {"eta": 0.1}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("classifier.eta=-1", "classifier.eta' is -1"),
        ("classifier.eta=fast", "classifier.eta' is 'fast'"),
        ("model.dropout=1.0", "less than or equal to 0.99"),
        ("model.head=tanh", "'relu', 'l2' or 'direct'"),
        ("data.owners=0", "greater than 0"),
        ("data.train=0.9", "leave no test nodes"),
        ("model.widths=[8,8,8]", "3 layers"),
        ("run.preset=fast", "Unknown preset 'fast'"),
        ("eta=1", "section.key=value"),
    ],
)
def test_a_bad_value_says_what_was_seen(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings = read_assignments([text])
        load_config(settings, preset=settings.get("run", {}).get("preset", "best"))
    assert says in str(caught.value)


def test_later_layers_win_over_earlier_ones_and_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[classifier]\neta = 0.5\nrounds_c = 7\n")
    config = load_config(
        read_toml(file), read_assignments(["classifier.eta=0.25"]), preset="paper"
    )
    assert config.classifier.eta == 0.25
    assert config.classifier.rounds_c == 7
    assert config.model.head == "l2"  # from the preset
    assert config.run.preset == "paper"


def test_printed_settings_are_a_config_file_for_the_same_settings(tmp_path: Path) -> None:
    config = load_config(read_assignments(["model.widths=[16,8]"]), preset="paper")
    file = tmp_path / "all.toml"
    file.write_text("\n".join(toml_lines(config)))
    assert load_config(read_toml(file), preset="paper") == config


def test_the_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().classifier.eta = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("false", False),
        ("False", "False"),  # is no TOML, so it stays a word
        ('"false"', "false"),
        ("0.5", 0.5),
        ("3", 3),
        ("[1, 2]", [1, 2]),
        ("hello", "hello"),
    ],
)
def test_values_on_the_command_line_are_toml_or_words(text: str, value: object) -> None:
    found = read_assignments([f"a.key={text}"])["a"]["key"]
    assert found == value and type(found) is type(value)


def test_the_preset_paper_is_pinned_to_the_paper() -> None:
    """Sec. 5.1: two layers, 5 neighbors, batch 64, 50 epochs, Adam, 0.001, 60-20-20."""
    config = load_config(preset="paper")
    assert config.model.model_dump() == {
        "backbone": "graphsage", "widths": (64, 32), "head": "l2", "norm": "none",
        "dropout": 0.0, "heads": 4, "ensemble": 3, "steps": 10, "teleport": 0.1, "share": 0.5,
    }  # fmt: skip
    assert config.classifier.model_dump() == {
        "rounds_c": 50, "local_epochs": 1, "small_epochs": 1, "batch_size": 64, "min_steps": 1,
        "fanouts": (5, 5), "eta": 1e-3, "eta_whole": 0.0, "cooling": 0.0,
        "optimizer": "adam", "weight_decay": 0.0, "moments": "averaged",
        "self_training": 0.0, "class_weights": "none",
        "weighting": "owners", "aggregate": "mean", "selection": "last", "patience": 0,
    }  # fmt: skip
    assert config.evaluation.inference == "sampled"
    assert (config.data.train, config.data.val) == (0.6, 0.2)


@pytest.mark.parametrize("text", ["data = 3", "[[classifier]]\neta = 1", 'run = "x"'])
def test_a_section_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(text)
    more = {"data": {"owners": 3}, "classifier": {"eta": 0.1}, "run": {"seed": 1}}
    with pytest.raises(ConfigError):
        load_config(read_toml(file), more)


OTHERS = {
    (
        "runs/events.py",
        "Event",
        "words",
    ),  # where a name means something else, or a study fixes what it is about
    ("bench/runs.py", "two_at_a_time", "owners"),
    ("federation/processes/start.py", "start", "wait"),
    ("bench/scale.py", "Case", "method"),
    ("cli/reproduce.py", "reproduce", "preset"),
    ("data/interop.py", "from_networkx", "features"),
    ("data/interop.py", "from_pyg", "split"),
    ("engines/inprocess.py", "__init__", "workers"),
    ("graph/graph.py", "from_networkx", "features"),
    ("graph/graph.py", "from_pyg", "split"),
    ("privacy/accountant.py", "Charge", "rate"),
    ("protocol/procedures.py", "Procedure", "leaves"),
    ("protocol/procedures.py", "procedure", "leaves"),
    ("reproduce/figures.py", "Panel", "at_least"),
    ("reproduce/studies.py", "Options", "owners"),
    ("reproduce/studies.py", "Options", "preset"),
    ("reproduce/studies.py", "accuracies", "queries"),
    ("runs/events.py", "Event", "kernel"),
    ("runs/run.py", "run", "aggregate"),
    ("runs/run.py", "run", "dataset"),
}
NAMES = {
    name
    for section in Config.model_fields.values()
    for name in section.annotation.model_fields  # type: ignore[union-attr]
}
PACKAGE = Path(fedsage.__file__).parent


def defaults(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What a signature, or a class of fields, says of itself where nothing is given."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args.posonlyargs + node.args.args
        held = node.args.defaults
        yield from zip([one.arg for one in given[len(given) - len(held) :]], held, strict=True)
        for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if default is not None:
                yield one.arg, default
    if isinstance(node, ast.ClassDef):
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                if line.value is not None:
                    yield line.target.id, line.value


def is_own_value(default: ast.expr) -> bool:
    """A value that is written down there: no name of one, and not None."""
    try:
        return ast.literal_eval(default) is not None
    except ValueError:
        return False


@pytest.mark.parametrize("source", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_no_default_of_a_setting_is_written_twice(source: Path) -> None:
    if source.parent.name == "config":
        return
    found = {
        (source.relative_to(PACKAGE).as_posix(), getattr(node, "name", ""), name)
        for node in ast.walk(ast.parse(source.read_text()))
        for name, default in defaults(node)
        if name in NAMES and is_own_value(default)
    }
    assert found <= OTHERS, "take the setting, or the section that it is in"


@pytest.mark.parametrize(
    "text",
    [
        "data.train=1e-6", "data.train=0.999", "model.widths=[65536,32]", "mend.rank=1000000",
        "classifier.local_epochs=1000000000", "run.threads=100000", "run.workers=100000",
        "classifier.fanouts=[1000000,5]", "classifier.rounds_c=1000000", "mend.leaves=1000000",
        "neighgen.hide_ratio=0.999", "neighgen.at_most=1000000", "neighgen.widths=[65536]",
        "neighgen.hidden=[65536]", "neighgen.rounds_gen=1000000", "traffic.rank=1000000",
        "neighgen.min_batch=1", "classifier.batch_size=0", "federation.deadline=1e12",
    ],
)  # fmt: skip
def test_what_no_machine_could_do_or_nobody_could_mean_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Setting '"):
        load_config(read_assignments([text]))


def limits_of(field: FieldInfo) -> set[str]:
    """Which limits a setting has: below, above."""
    found, kinds = [*field.metadata], [field.annotation]
    while kinds:
        kind = kinds.pop()
        for one in getattr(kind, "__metadata__", ()):
            found += getattr(one, "metadata", [one])
        kinds += [one for one in get_args(kind) if not isinstance(one, str | int)]
    below = any(isinstance(one, Ge | Gt) for one in found)
    above = any(isinstance(one, Le | Lt) for one in found)
    return {word for word, there in (("below", below), ("above", above)) if there}


def test_every_number_has_limits_in_process_too() -> None:
    """What would take all memory, or no end, is refused before anything is done."""
    free = {"run.seed", "synthetic.seed", "traffic.bits"}  # any number; one of two
    for section, part in Config.model_fields.items():
        for name, field in part.annotation.model_fields.items():  # type: ignore[union-attr]
            is_number = not isinstance(field.default, bool | str)
            if is_number and f"{section}.{name}" not in free:
                assert limits_of(field) == {"below", "above"}, f"{section}.{name}"
