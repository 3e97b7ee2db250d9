from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedsage.data.npz import save_graph
from fedsage.data.synthetic import synthetic
from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition, partition
from fedsage.mending.way import WAYS, way_of_mending
from fedsage.methods import Method, Outcome, find_method
from fedsage.methods import fedsage as fedsage_loop
from fedsage.protocol.messages import Ask, ClassifierUpdate
from fedsage.protocol.owner import DataOwner
from fedsage.runs.events import Event
from fedsage.runs.result import load_result
from fedsage.runs.run import run
from tests.cli.conftest import SMALL, Call, fedsage  # noqa: F401

EXAMPLE = Path(__file__).parent.parent / "examples" / "my_method.py"
FEW = {"classifier": {"rounds_c": 2, "selection": "last"}}


class Lazy(DataOwner):
    """Sends back what it got."""

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        phi = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        return ClassifierUpdate(phi, {}, 1.0, 0.0)


class Undecided(DataOwner):
    """Trains, and then sends back what it got."""

    def local_update_c(self, ask: Ask) -> ClassifierUpdate:
        phi = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        return replace(super().local_update_c(ask), phi=phi, loss=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "how"), [(Lazy, "full"), (Undecided, "full"), (Undecided, "low-rank")]
)
def test_an_owner_of_ones_own_is_asked_in_place_of_ours(
    owner: type[DataOwner], how: str, graph: Graph, owners: Partition
) -> None:
    few = FEW | {"traffic": {"how": how}}
    lazy = run(owners, Method("lazy", owner=owner), evaluate_on=graph, settings=few)
    assert lazy.record.method == "lazy"
    assert lazy.history[-1].loss == 0
    ours = run(owners, Method("same"), evaluate_on=graph, settings=few)
    assert ours.record.model_sha256 == run(owners, "fedsage", settings=few).record.model_sha256
    assert ours.record.model_sha256 != lazy.record.model_sha256


def test_a_loop_of_ones_own_is_run_in_place_of_ours(graph: Graph, owners: Partition) -> None:
    def half(exchange, classifier, *, rounds_c, **more) -> Outcome:  # type: ignore[no-untyped-def]
        return fedsage_loop(exchange, classifier, rounds_c=rounds_c // 2, **more)

    assert len(run(owners, Method("half", train=half), settings=FEW).history) == 1


@pytest.mark.slow
def test_the_example_s_pull_is_felt_and_vanishes_with_mu(
    owners: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_only = {
        "run": {"kernel": "torch"},
        "classifier": FEW["classifier"] | {"batch_size": 4},
    }
    plain = run(owners, "fedsage", settings=torch_only).models[0].phi
    gaps = []
    for mu in (0.0, 10.0):
        method = find_method(str(EXAMPLE))
        monkeypatch.setitem(method.owner.local_update_c.__globals__, "MU", mu)
        phi = run(owners, method, settings=torch_only).models[0].phi
        gaps.append(max(float((phi[name] - plain[name]).abs().max()) for name in phi))
    assert gaps[0] < 1e-5 < 1e-3 < gaps[1]


def test_files_without_a_method_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(ConfigError, match=r"one method with @fs\.method, but registers none"):
        find_method(str(empty))
    with pytest.raises(ConfigError, match="cannot be read"):
        find_method(str(tmp_path / "none.py"))


def test_a_method_in_a_variable_is_found_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text('import fedsage as fs\nMETHOD = fs.Method("mine", mends="copy")\n')
    assert find_method(str(file)).name == "mine"
    assert find_method(str(file)).way("none").name == "copy"


def test_a_file_is_run_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    file, log = tmp_path / "mine.py", tmp_path / "log"
    text = (
        "import fedsage as fs\n"
        "from pathlib import Path\n"
        f"log = Path({str(log)!r})\n"
        "log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
        "METHOD = fs.Method('{name}')\n"
    )
    file.write_text(text.replace("{name}", "first"))
    owners = partition(synthetic(nodes=60, features=40, classes=3), 2, "random", 0)
    run(owners, str(file), settings=FEW)
    assert log.read_text() == "x"
    file.write_text(text.replace("{name}", "second"))
    assert find_method(str(file)).name == "second"
    assert log.read_text() == "xx"


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already a way of mending called 'copy'"):
        way_of_mending("copy")(lambda exchange: None)


OWN = {
    "my_mending": ("fedsage+{}", []),
    "my_rule": ("fedsage", ["--aggregate", "{}"]),
    "my_method": ("{}", []),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_example_goes_through_compare_predict_and_report(
    name: str,
    fedsage: Call,  # noqa: F811
    tmp_path: Path,
) -> None:
    file = str(EXAMPLE.with_name(f"{name}.py"))
    method, more = OWN[name]
    words = [word.format(file) for word in (f"{method},locsage", *more)]
    done = fedsage("compare", *SMALL, "--methods", *words, "--seeds", "2", "--out", "c")
    assert done.code == 0, done.err
    rows = json.loads(Path("c/compare.json").read_text())["rows"]
    assert len(rows) == 2 and len(rows[0]["global"]["each"]) == 2
    (folder,) = [one for one in Path("c").glob("*seed0") if "locsage" not in one.name]
    assert load_result(folder).model.predict(synthetic(nodes=90, features=40, classes=3)).any()
    graph = synthetic(nodes=90, features=40, classes=3)
    save_graph(graph, "graph.npz")
    done = fedsage("predict", "--model", str(folder), "--data", "graph.npz", "--out", "p.csv")
    assert done.code == 0, done.err
    assert len(Path("p.csv").read_text().splitlines()) == 91
    done = fedsage("report", "c", "--out", "r.html")
    assert done.code == 0, done.err
    assert rows[0]["method"] in Path("r.html").read_text()


@pytest.mark.slow
def test_a_rule_can_be_a_function(owners: Partition) -> None:
    seen: list[int] = []

    def first(updates, weights):  # type: ignore[no-untyped-def]
        seen.append(len(updates))
        return updates[0]

    result = run(owners, "fedsage", settings=FEW, aggregate=first)
    assert seen == [3, 3]  # the moments of the chosen one come with it
    assert (
        result.record.model_sha256 != run(owners, "fedsage", settings=FEW).record.model_sha256
    )


@pytest.mark.slow
def test_a_callback_sees_each_round_and_can_stop(owners: Partition, graph: Graph) -> None:
    seen: list[tuple[str, int]] = []

    def stop_early(event: Event) -> None:
        seen.append((event.phase, event.round))
        assert event.loss > 0
        if event.phase == "training":
            assert event.validation is not None and event.model is not None
            assert event.model.predict(graph).shape == (60,)
            if event.round == 3:
                event.stop()

    settings = {"classifier": {"rounds_c": 50}, "neighgen": {"rounds_gen": 2}}
    result = run(
        owners, "fedsage+shared", settings=settings, evaluate_on=graph, callbacks=[stop_early]
    )
    assert seen == [("mending", 0), ("mending", 1), *(("training", t) for t in range(4))]
    short = settings | {"classifier": {"rounds_c": 4}}
    same = run(owners, "fedsage+shared", settings=short, evaluate_on=graph)
    assert result.record.model_sha256 == same.record.model_sha256
    assert result.accuracy == same.accuracy


@pytest.mark.slow
def test_a_library_call_writes_and_resumes_the_command_line_s_folder(
    owners: Partition, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def kill(event: Event) -> None:
        if event.round == 2:
            raise Stop

    settings = {"classifier": {"rounds_c": 5, "selection": "last"}}
    whole = run(owners, "fedsage", settings=settings)
    with pytest.raises(Stop):
        run(owners, "fedsage", settings=settings, out=tmp_path / "r", callbacks=[kill])
    assert (tmp_path / "r" / "checkpoint").is_dir()
    with pytest.raises(ConfigError, match="has other settings"):
        run(owners, "locsage", settings=settings, out=tmp_path / "r", resume=True)
    result = run(owners, "fedsage", settings=settings, out=tmp_path / "r", resume=True)
    assert result.record.model_sha256 == whole.record.model_sha256
    assert result.record.resumed == 1
    names = {path.name for path in (tmp_path / "r").iterdir()}
    kept = {"history.jsonl", "model.json", "model.safetensors", "owners", "result.json"}
    assert names == kept
    again = load_result(tmp_path / "r")
    assert again.record == result.record and again.history == result.history
    with pytest.raises(ConfigError, match="holds another run"):
        run(owners, "fedsage", settings=settings, out=tmp_path / "r")


def test_a_library_call_does_not_pretend_to_run_between_machines(owners: Partition) -> None:
    with pytest.raises(ConfigError, match="trains in one process"):
        run(owners, "fedsage", settings={"run": {"engine": "nvflare"}})


MENDS_AND_KEEPS = """
import fedsage as fs
from dataclasses import dataclass

@dataclass(frozen=True)
class Count:
    times: int

class Memory:
    def __init__(self): self.times = 0
    def state(self) -> Count: return Count(self.times)
    def restore(self, state: Count) -> None: self.times = state.times

def memory(owner): return owner.part("memory", Memory)

@fs.procedure(phase="mending", owed=True, keeps=memory)
def mend_and_remember(owner: fs.DataOwner, ask: fs.Ask) -> fs.Mended:
    memory(owner).times += 1
    train = owner.split.train
    return owner.attach(fs.Generated.of(train, owner.graph.x[train], owner.graph))

@fs.way_of_mending("remembering")
def by_memory(exchange: fs.Exchange) -> None:
    exchange.all(mend_and_remember, fs.Ask(0))
"""
TELLS = """
import fedsage as fs

@fs.message
class Said:
    value: {kind}

@fs.procedure(phase="mending", uses=fs.Open{leaves})
def tell(owner: fs.DataOwner, ask: fs.Ask) -> Said:
    return Said({value})

@fs.way_of_mending("telling")
def by_telling(exchange: fs.Exchange) -> None:
    exchange.all(tell, fs.Ask(0))
"""


@pytest.mark.slow
def test_a_way_that_mends_and_keeps_in_one_step_is_resumed(
    owners: Partition, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def kill(event: Event) -> None:
        if event.round == 1:
            raise Stop

    file = tmp_path / "remembering.py"
    file.write_text(MENDS_AND_KEEPS)
    given = {"method": f"fedsage+{file}", "settings": {"classifier": {"rounds_c": 4}}}
    whole = run(owners, **given)
    with pytest.raises(Stop):
        run(owners, **given, out=tmp_path / "r", callbacks=[kill])
    again = run(owners, **given, out=tmp_path / "r", resume=True)
    assert again.record.model_sha256 == whole.record.model_sha256
    assert again.record.mending is not None


def test_a_procedure_that_does_not_say_what_leaves_is_refused(
    owners: Partition, tmp_path: Path
) -> None:
    file = tmp_path / "quiet.py"
    file.write_text(TELLS.format(kind="float", leaves="", value="1.0"))
    with pytest.raises(ConfigError, match="does not say what leaves"):
        run(owners, f"fedsage+{file}", settings=FEW)
    file.write_text(TELLS.format(kind="str", leaves=', leaves="x"', value="'y'"))
    with pytest.raises(ConfigError, match="text can hold anything"):
        run(owners, f"fedsage+{file}", settings=FEW)


@pytest.mark.parametrize(
    "signature",
    ["tell(owner, ask)", "tell(owner, ask: fs.Ask)", "tell(owner, ask: fs.Ask) -> float",
     "tell(owner: fs.DataOwner) -> Said"],
)  # fmt: skip
def test_a_procedure_that_does_not_name_its_messages_is_refused(
    owners: Partition, tmp_path: Path, signature: str
) -> None:
    file = tmp_path / "vague.py"
    lines = TELLS.format(kind="float", leaves=', leaves="a number"', value="1.0").splitlines()
    [said] = [line for line in lines if line.startswith("def tell(")]
    file.write_text("\n".join(f"def {signature}:" if line == said else line for line in lines))
    with pytest.raises(ConfigError, match=r"Procedure 'tell' in .*vague\.py must name"):
        run(owners, f"fedsage+{file}", settings=FEW)


def test_a_user_s_file_cannot_take_a_name_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "taken.py"
    file.write_text(
        "import fedsage as fs\n"
        "@fs.way_of_mending('subspace')\n"
        "def mine(exchange: fs.Exchange) -> None: ...\n"
    )
    with pytest.raises(ConfigError, match="already a way of mending called 'subspace'"):
        WAYS.find(str(file))


@pytest.mark.slow
def test_the_record_names_the_rule_that_was_handed_over(owners: Partition) -> None:
    def mine(updates, weights):  # type: ignore[no-untyped-def]
        return updates[0]

    folder = Path("r")
    run(owners, "fedsage", settings=FEW, aggregate=mine, out=folder)
    kept = json.loads((folder / "result.json").read_text())["config"]["classifier"]["aggregate"]
    assert kept.endswith("mine")
    again = run(owners, "fedsage", settings=FEW, aggregate=mine, out=folder, resume=True)
    assert again.record.out == "r"


def test_a_misspelt_way_is_refused_whatever_the_method(owners: Partition) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'subspace'"):
        run(owners, "fedsage", settings=FEW | {"mend": {"how": "subspac"}})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["my_rule", "my_mending", "my_method", "my_backbone"])
def test_a_file_is_found_in_a_process_that_has_loaded_nothing_else(name: str) -> None:
    registries = {
        "my_rule": "fedsage.protocol.server:RULES",
        "my_mending": "fedsage.mending.way:WAYS",
        "my_method": "fedsage.methods:METHODS",
        "my_backbone": "fedsage.models.backbone:BACKBONES",
    }
    module, _, variable = registries[name].partition(":")
    code = (
        "import sys; from fedsage.registry import run_file; run_file(sys.argv[1]); "
        f"from {module} import {variable} as found; print(found.find(sys.argv[1]).name)"
    )
    words = [sys.executable, "-c", code, str(EXAMPLE.with_name(f"{name}.py"))]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("near-the-median", "class-means", "proximal", "my-gat")
