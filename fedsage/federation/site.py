"""An owner on its own machine: what it does when the server asks, and what it keeps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from fedsage.checkpoint.owner import Keeper
from fedsage.config import Config
from fedsage.data.npz import save_graph
from fedsage.data.owned import Owned
from fedsage.errors import ConfigError, PrivacyError, ProtocolError
from fedsage.federation.allowed import with_own_copies
from fedsage.federation.words import what_leaves
from fedsage.files import write_atomically, write_json
from fedsage.graph.split import split_labels
from fedsage.methods import find_method
from fedsage.models.classifier import NodeClassifier, save_models
from fedsage.models.gen_learner import GenLearner
from fedsage.models.parameters import Logits, parameters_of, sha256_of
from fedsage.protocol.agreement import (
    Able,
    Agreement,
    ColumnMeans,
    ColumnScale,
    ColumnSquares,
    ColumnSums,
    Finish,
    Joined,
    Ready,
    Step,
)
from fedsage.protocol.chain import AGREED, RUN_NAME, Ledger
from fedsage.protocol.door import Door, Record
from fedsage.protocol.messages import Ask, Doubles
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Open, Procedure, Summed, procedure, procedures_in
from fedsage.protocol.wire import decode
from fedsage.runs.folder import SETTINGS
from fedsage.runs.setup import plan_of
from fedsage.tables.tables import Scale, column_squares, column_sums
from fedsage.threads import dense_threads

FEWEST = 8  # nodes that anything which leaves is a sum over
NOTHING = torch.zeros(0, dtype=torch.float64)
LEAVES, NEIGHGEN, MENDED, PREDICTIONS = (
    "what-leaves.txt", "neighgen.safetensors", "mended.npz", "predictions.csv",
)  # fmt: skip


def words_of_agreeing(config: Config) -> str:
    """Whether the number of training nodes leaves depends on the settings."""
    weighted = config.classifier.weighting == "nodes"
    return (
        "Once, at the start: the version of fedsage, a checksum of your schema with the names "
        "of classes, and how many nodes you have"
        f"{' and how many of them are for training' * weighted}."
    )


def sums_form(plan: Plan) -> dict[str, Any]:
    """The form of sums over columns."""
    return {"count": Doubles((plan.numbers,)), "total": Doubles((plan.numbers,))}


class Site:
    """One owner. All that it writes goes to ``runs/RUN``, on its own disk.

    Args:
        name: What the owner is called.
        owned: Its data.
        runs: The folder for what its runs leave behind.
        version: Of the fedsage that runs here.
        tell: Where plain words for the owner go.
        record: Writes lines of ``sent.jsonl``: the gate, or this process in a rehearsal.
    """

    def __init__(
        self, name: str, owned: Owned, runs: Path, version: str, tell: Callable[[str], None],
        record: Record | None = None,
    ) -> None:  # fmt: skip
        self.name, self.owned, self.runs, self.version = name, owned, runs, version
        self.tell = tell
        first = {Site.agree.name: Site.agree}  # before anything else
        self.door = Door(first, folder=runs / "unnamed", record=record or Ledger().append)
        self.config: Config | None = None
        self.scale: Scale | None = None
        self._keeper: Keeper | None = None

    def answer(self, name: str, frame: bytes) -> bytes:
        """Do what is asked, and give the reply as it will leave."""
        asked = self.door.asked(name)
        request = decode(asked.request, frame)
        with dense_threads(self.config.run.threads if self.config else 1):
            joins = name in JOINING
            reply = asked.run(self, request) if joins else self.keeper.perform(asked, request)
            return self.door.let_out(asked, reply)

    @procedure(phase="evaluation", uses=Open, leaves=words_of_agreeing)
    def agree(self, agreement: Agreement) -> Joined:
        """Compare versions, take the settings, say in plain words what will leave."""
        if self.config is not None:
            raise PrivacyError(f"Owner {self.name} has agreed to this run already.")
        if not RUN_NAME.fullmatch(agreement.run):
            raise PrivacyError("The name of the run is not made of letters, digits and '-'.")
        if agreement.version != self.version:
            raise ConfigError(
                f"The version differs: the server has fedsage {agreement.version}, owner "
                f"{self.name} has {self.version}. Install the same one."
            )
        given = Config.model_validate(json.loads(agreement.settings))
        config = with_own_copies(given, json.loads(agreement.files), self.runs.parent)
        if config.neighgen.min_batch < FEWEST:
            raise PrivacyError(
                f"The run asks for gradients over {config.neighgen.min_batch} rows; owner "
                f"{self.name} answers for {FEWEST} or more (neighgen.min_batch)."
            )
        self.index, self.folder = agreement.owner, self.runs / agreement.run
        self.check_same_run(given, agreement.files)
        self.config, self.method = config, find_method(config.run.method)
        way = self.method.way(config.mend.how)
        features, names = self.owned.names
        self.plan: Plan = plan_of(
            config, self.method, way, features, len(names), [self.owned.num_nodes],
            numbers=self.owned.num_numbers,
        )  # fmt: skip
        self.split = self.owned.split or split_labels(
            self.owned.y, config.data.train, config.data.val, config.run.seed, self.index
        )
        words = what_leaves(config, self.asks, json.loads(agreement.files))
        write_atomically(self.folder / LEAVES, lambda file: file.write(words.encode()))
        write_json(self.folder / SETTINGS, config.model_dump(mode="json"))
        self.tell(words)
        self.door.folder, self.door.plan, self.door.asks = self.folder, self.plan, JOINING
        weighted = config.classifier.weighting == "nodes"
        return Joined(
            version=self.version,
            schema=self.owned.sha256,
            features=features,
            classes=len(names),
            nodes=self.owned.num_nodes,
            weight=float(len(self.split.train)) if weighted else 1.0,
            names=json.dumps(names),
        )

    @property
    def asks(self) -> list[Procedure[Any, Any, Any]]:
        """What may be asked of this owner in the agreed run."""
        scaled = self.owned.num_numbers > 0
        columns = {Site.column_sums.name, Site.column_squares.name}
        before = [one for name, one in JOINING.items() if scaled or name not in columns]
        return [*before, *self.plan.asks.values()]

    @procedure(
        phase="evaluation",
        uses=Summed,
        shapes=sums_form,
        leaves="Once, at the start: for every column of numbers, how many values it has and "
        "their sum (over all your nodes together).",
    )
    def column_sums(self, ask: Ask) -> ColumnSums:
        """Sums over all nodes, for the mean."""
        if self.owned.tables is None:
            return ColumnSums(NOTHING, NOTHING)
        self.check_enough()
        count, total = column_sums(self.owned.tables)
        return ColumnSums(torch.from_numpy(count), torch.from_numpy(total))

    @procedure(
        phase="evaluation",
        uses=Summed,
        shapes=lambda plan: {"total": Doubles((plan.numbers,))},
        leaves="Once, at the start: for every column of numbers, the sum of squared distances "
        "from the mean of all owners.",
    )
    def column_squares(self, means: ColumnMeans) -> ColumnSquares:
        """Sums over all nodes, for the deviation from one mean of each column."""
        mean, columns = means.mean, (self.owned.num_numbers,)
        if mean.shape != columns or not bool(torch.isfinite(mean).all()):
            raise PrivacyError(
                f"Owner {self.name} has {columns[0]} columns of numbers, but got means, "
                f"{tuple(mean.shape)}: a mean for each node would show single nodes."
            )
        if self.owned.tables is None:
            return ColumnSquares(NOTHING)
        self.check_enough()
        found = column_squares(self.owned.tables, means.mean.numpy())
        return ColumnSquares(torch.from_numpy(found))

    def check_enough(self) -> None:
        """Refuse sums over so few nodes that they would show single ones."""
        assert self.owned.tables is not None
        count, _ = column_sums(self.owned.tables)
        few = (count > 0) & (count < FEWEST)
        if few.any():
            raise PrivacyError(
                f"Owner {self.name} has a column with {int(count[few][0])} values: sums over "
                f"fewer than {FEWEST} would show single ones. Leave this owner out, or fill or "
                "drop the column."
            )

    def check_same_run(self, config: Config, files: str) -> None:
        """Refuse to go on with a run whose settings or data are not what they were."""
        settings = config.model_dump_json(exclude={"federation"}) + files
        now = {"settings": sha256(settings.encode()).hexdigest(), "data": self.owned.content}
        path = self.folder / AGREED
        before = json.loads(path.read_text()) if path.exists() else now
        for what, seen in now.items():
            if before[what] != seen:
                raise ConfigError(
                    f"Owner {self.name} began this run with other {what} ({before[what][:12]}, "
                    f"now {seen[:12]}). Bring them back, or start a new run."
                )
        write_json(path, now)

    @procedure(phase="evaluation", uses=Open)
    def receive_scale(self, scale: ColumnScale) -> Ready:
        """Scale the columns, and be ready to train."""
        self.scale = Scale(scale.mean.numpy().copy(), scale.std.numpy().copy())
        graph = self.owned.graph(self.scale)
        owner = self.method.owner(self.index, graph, self.split, self.plan)
        asks, folder = self.plan.asks.values(), self.folder / "checkpoint"
        self._keeper = Keeper(owner, asks, folder, durable=True)
        return Ready()

    @property
    def keeper(self) -> Keeper:
        """The owner with its checkpoints, once the columns are scaled."""
        if self._keeper is None:
            raise ProtocolError(f"Owner {self.name} has not joined a run yet.")
        return self._keeper

    @procedure(phase="evaluation", uses=Open, leaves="After a restart: whether you can go on.")
    def able(self, step: Step) -> Able:
        """Whether the state of that moment was kept."""
        return Able(self.keeper.has(phase_of(step), step.t, step.mended))

    @procedure(phase="evaluation", uses=Open)
    def restore(self, step: Step) -> Ready:
        """Become what this owner was at that moment."""
        self.keeper.restore(phase_of(step), step.t, step.mended)
        return Ready()

    @procedure(phase="evaluation", uses=Open)
    def finish(self, finish: Finish) -> Ready:
        """Write model, NeighGen, mended graph and predictions to this owner's disk alone."""
        owner = self.keeper.owner
        if sha256_of(parameters_of(owner.model)) != finish.model:
            raise ProtocolError("it does not have the classifier of the end of the run")
        names = self.owned.names[1]
        schema, scale = self.owned.schema, self.scale if self.owned.schema else None
        model = NodeClassifier(
            self.plan.shape, parameters_of(owner.model), names, schema, scale
        )
        save_models([model], self.folder)
        if isinstance(learner := owner.parts.get("neighgen"), GenLearner):
            weights = safetensors.torch.save(parameters_of(learner.neighgen))
            write_atomically(self.folder / NEIGHGEN, lambda file: file.write(weights))
        if owner.mended is not None:
            save_graph(owner.mended, self.folder / MENDED)
        text = predictions(owner, finish.view, list(self.owned.ids), names)
        write_atomically(self.folder / PREDICTIONS, lambda file: file.write(text.encode()))
        self.tell(f"The run is over. Predictions: {self.folder / PREDICTIONS}")
        return Ready()


JOINING = procedures_in(Site.__module__)


def phase_of(step: Step) -> Any:
    """The phase that a step names, if there is such a one."""
    if step.phase not in ("mending", "training"):
        raise ProtocolError(f"'{step.phase}' is no phase of a run.")
    return step.phase


def predictions(owner: DataOwner, view: str, ids: list[str], names: tuple[str, ...]) -> str:
    """The most likely class of every node of the owner, labelled or not, as CSV."""
    nodes = torch.arange(len(ids)).numpy()
    plain = owner.answers(owner.graph, nodes)
    mended = plain if owner.mended is None else owner.answers(owner.mended, nodes)
    chosen: dict[str, Logits] = {"plain": plain, "mended": mended, "both": plain + mended}
    shares = chosen[view].softmax(dim=1)
    best = shares.argmax(dim=1).tolist()
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["id", "predicted", "probability"])
    for v, c in enumerate(best):
        table.writerow([ids[v], names[c], f"{float(shares[v, c]):.4f}"])
    return text.getvalue()
