"""An owner on its own machine: how it answers the server, and what it keeps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsage.checkpoint.owner import Keeper
from fedsage.config import Config
from fedsage.data.owned import Owned
from fedsage.errors import PrivacyError, ProtocolError
from fedsage.federation.before_training.columns import COLUMNS, column_squares, column_sums
from fedsage.federation.before_training.earlier_run import begin, begun_with, remember_start
from fedsage.federation.before_training.features import FEATURES, formed, own_form
from fedsage.federation.consent.decide import Decision, Terms, decision_on
from fedsage.federation.consent.how_often import enter
from fedsage.federation.consent.policy import Policy, read_policy
from fedsage.federation.consent.proposal import Proposal, proposal_in
from fedsage.federation.consent.what_leaves import told_nodes, what_leaves, words_of_agreeing
from fedsage.federation.owner.pause import Steering
from fedsage.federation.owner.prepare import check_private_run, new_masks, new_owner
from fedsage.federation.owner.results import save_outcome
from fedsage.files import write_atomically, write_json
from fedsage.graph.feature_forms import RAW, FeatureForm, setting_for
from fedsage.machine import dense_threads
from fedsage.models.parameters import parameters_of, sha256_of
from fedsage.models.warm_start import Places
from fedsage.protocol.agreement import (
    Able,
    Agreement,
    ColumnScale,
    Consent,
    FeatureSums,
    Finish,
    Joined,
    Ready,
    Step,
    WordsFrom,
)
from fedsage.protocol.door import Door, Record
from fedsage.protocol.hidden_sums.masks import Identity
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import (
    Open,
    Procedure,
    in_private,
    in_sums,
    procedure,
    procedures_in,
)
from fedsage.protocol.sent_log import AGREED, Ledger
from fedsage.protocol.wire import MOST_BYTES, decode
from fedsage.runs.earlier_run import Earlier, check_same_form
from fedsage.runs.folder import SETTINGS
from fedsage.tables.tables import Scale, no_scale

LONGEST_AGREEMENT = 1 << 20  # bytes of a message that may come before the agreement
HELD, LOOK = 20.0, 0.2  # seconds that a question waits for the owner, and between two looks
LEAVES = "what-leaves.txt"
BEFORE = "before"  # the folder with the log of what was sent before a run was agreed


class Site:
    """One owner. Everything it writes goes to ``runs/RUN`` on its own disk.

    Args:
        name: The owner's name.
        owned: Its data.
        runs: The folder for what its runs leave behind.
        version: The version of fedsage running here.
        tell: Called with messages for the owner.
        identity: Signs its keys, if sums are hidden.
        policy: What runs may ask of it; by default that of its kit, two folders up.
        secret: Mixed into the run's seed for its draws; it stays in the kit.
        record: Writes lines of ``sent.jsonl``: the gate, or this process in a rehearsal.
    """

    def __init__(
        self,
        name: str,
        owned: Owned,
        runs: Path,
        version: str,
        tell: Callable[[str], None],
        identity: Identity | None = None,
        policy: Policy | None = None,
        record: Record | None = None,
        secret: str = "",
    ) -> None:
        self.name, self.owned, self.runs, self.version = name, owned, runs, version
        self.tell, self.identity, self._policy, self.secret = tell, identity, policy, secret
        first = {one.name: one for one in (Site.consent, Site.agree)}  # before anything else
        self.door = Door(first, folder=runs / BEFORE, record=record or Ledger().append)
        self.config: Config | None = None
        self.scale: Scale | None = None
        self.form: FeatureForm | None = None
        self._keeper: Keeper | None = None
        self._told = ""
        self.steering: Steering | None = None  # of the agreed run
        self.earlier: Earlier | None = None  # the run that the agreed one begins with
        self.places: Places | None = None

    def answer(self, name: str, frame: bytes, lot: int | None = None) -> bytes:
        """Do what is asked; returns the reply as it leaves, masked if there is a ``lot``."""
        asked = self.door.asked(name)
        longest = MOST_BYTES if self.config else LONGEST_AGREEMENT
        request = decode(asked.request, frame, longest)
        if self.steering is not None:
            self.steering.heed(request)
        with dense_threads(self.config.run.threads if self.config else 1):
            if self.door.about_masks(asked):
                reply = asked.run(self.door.masks, request)
            elif name in JOINING:
                reply = asked.run(self.owned if name in OF_DATA else self, request)
            else:
                reply = self.keeper.perform(asked, request)
            return self.door.let_out(asked, reply, lot, request)

    @procedure(
        phase="evaluation",
        uses=Open,
        leaves="Before the run: whether you take part and, if not, the words you gave.",
        private="no data",
    )
    def consent(self, agreement: Agreement) -> Consent:
        """Whether the owner takes part; waits a little for one who has to decide."""
        proposed, end = self.proposed(agreement), time.monotonic() + HELD
        terms = self.terms(proposed)
        while (found := self.decision(terms, proposed)) is None and time.monotonic() < end:
            time.sleep(LOOK)
        if found is None:
            self.tell_once(
                f"Run {agreement.run} is waiting for your decision: fedsage federation approve"
            )
            return Consent(decided=False, yes=False, words="")
        return Consent(decided=True, yes=found.yes, words=found.words)

    @procedure(phase="evaluation", uses=Open, leaves=words_of_agreeing, private="no data")
    def agree(self, agreement: Agreement) -> Joined:
        """Accept the settings that the owner consents to, and say what will leave."""
        proposed = self.proposed(agreement)
        found = self.decision(terms := self.terms(proposed), proposed)
        if found is None or not found.yes:
            raise PrivacyError(f"Owner {self.name} has not consented to this run.")
        self.index, self.folder = agreement.owner, self.runs / agreement.run
        goes_on = (self.folder / AGREED).exists()
        enter(self.policy, self.runs.parent, agreement.run, proposed.rounds, goes_on)
        proposed.check_same(self.name, self.owned.content, self.folder)
        config = self.config = proposed.config
        self.form = None if formed(config) else RAW
        self.steering = Steering(self.runs.parent, agreement.run)
        self.method, self.earlier = proposed.method, proposed.earlier
        self.split = proposed.split
        self.plan: Plan = begun_with(self, proposed.plan)
        write_atomically(self.folder / LEAVES, lambda file: file.write(terms.leaves.encode()))
        write_json(self.folder / SETTINGS, config.model_dump(mode="json"))
        word, leaves = "continues" if goes_on else "begins", self.folder / LEAVES
        self.tell(f"Run {agreement.run} {word} ({config.run.method}). What leaves: {leaves}")
        self.door.folder, self.door.plan, self.door.asks = self.folder, self.plan, JOINING
        nodes, weight = self.owned.num_nodes, 1.0
        if in_sums(config):
            nodes, weight = min(nodes, told_nodes(config)), 0.0
            self.door.masks = new_masks(self, config)
        elif config.classifier.weighting == "nodes":
            weight = float(len(self.split.train))
        features, names = self.owned.names
        columns = json.dumps(self.owned.marks)
        return Joined(
            self.version, self.owned.sha256, features, len(names), nodes, weight,
            json.dumps(names), columns,
        )  # fmt: skip

    def proposed(self, agreement: Agreement) -> Proposal:
        """The run that the server asks for, which the policy allows."""
        if self.config is not None:
            raise PrivacyError(f"Owner {self.name} has already agreed to this run.")
        found = proposal_in(
            agreement, self.name, self.version, self.owned, self.policy, self.runs, self.secret,
        )  # fmt: skip
        check_private_run(self, found)
        if self.owned.schema and not in_private(found.config):
            setting_for(found.config.data.features, self.owned.schema.sparse_form)
        return found

    def terms(self, proposed: Proposal) -> Terms:
        """What the owner is shown before it decides."""
        words = what_leaves(proposed.config, self.asks(proposed.plan), proposed.files)
        settings = proposed.given.model_dump(mode="json")
        return Terms(proposed.run, settings, proposed.files, words)

    def decision(self, terms: Terms, proposed: Proposal) -> Decision | None:
        """What the owner decided; None if it still has to."""
        return decision_on(self.runs.parent, terms, self.policy, proposed.given)

    def tell_once(self, words: str) -> None:
        """Tell the owner something, unless it was the last thing that was told."""
        if words != self._told:
            self._told = words
            self.tell(words)

    @property
    def policy(self) -> Policy:
        """What runs may ask of this owner."""
        return self._policy or read_policy(self.runs.parents[1])

    def asks(self, plan: Plan) -> list[Procedure[Any, Any, Any]]:
        """What this owner may be asked in a run."""
        scaled = self.owned.num_numbers > 0
        columns = {column_sums.name, column_squares.name}
        before = [
            one
            for name, one in JOINING.items()
            if (scaled or name not in columns) and one.fits(plan.config)
        ]
        return [*before, *plan.asks.values()]

    @procedure(
        phase="evaluation",
        uses=Open,
        leaves="Once, at the start: which of your features are words, as your schema says.",
        when=formed,
    )
    def receive_form(self, sums: FeatureSums) -> WordsFrom:
        """Find out the form of features from sums over all owners."""
        self.form = own_form(self.plan.config, sums, self.owned)
        return WordsFrom(self.form.first)

    @procedure(phase="evaluation", uses=Open, binds=True, private="no data")
    def receive_scale(self, scale: ColumnScale) -> Ready:
        """Scale the columns, give features their form, and get ready to train."""
        if self.form is None:
            raise ProtocolError(f"Owner {self.name} was not told the form of features.")
        if self.earlier is not None:
            check_same_form(self.earlier, self.form)
        self.scale = Scale(scale.mean.numpy().copy(), scale.std.numpy().copy())
        if in_private(self.plan.config):  # the ranges in the schema, which everybody knows
            self.scale = no_scale(self.owned.num_numbers)
        graph = self.form.of_graph(self.owned.graph(self.scale))
        asks, folder = self.plan.asks.values(), self.folder / "checkpoint"
        self._keeper = Keeper(new_owner(self, graph), asks, folder, durable=True)
        return Ready()

    @property
    def keeper(self) -> Keeper:
        """The owner with its checkpoints, once the columns are scaled."""
        if self._keeper is None:
            raise ProtocolError(f"Owner {self.name} has not joined a run yet.")
        return self._keeper

    @procedure(
        phase="evaluation",
        uses=Open,
        leaves="After a restart: whether you can continue.",
        private="no data",
    )
    def able(self, step: Step) -> Able:
        """Whether the state at that point was kept."""
        return Able(self.keeper.has(phase_of(step), step.t, step.mended))

    @procedure(phase="evaluation", uses=Open, private="no data")
    def restore(self, step: Step) -> Ready:
        """Return to this owner's state at that point."""
        self.keeper.restore(phase_of(step), step.t, step.mended)
        return Ready()

    @procedure(phase="evaluation", uses=Open, private="no data")
    def finish(self, finish: Finish) -> Ready:
        """Write model, mended graph and predictions to this owner's disk only."""
        owner = self.keeper.owner
        if sha256_of(parameters_of(owner.model)) != finish.model:
            raise ProtocolError("it does not have the final classifier of the run")
        remember_start(owner, self.folder)
        known = self.scale, self.form or RAW
        found = save_outcome(owner, self.name, self.owned, *known, finish, self.folder)
        self.tell(f"Run {self.folder.name} is over. Predictions: {found}")
        return Ready()


OF_DATA = COLUMNS | FEATURES
JOINING = procedures_in(Site.__module__, begin.module) | OF_DATA


def phase_of(step: Step) -> Any:
    """The phase that a step names; refuses any other word."""
    if step.phase not in ("mending", "training"):
        raise ProtocolError(f"'{step.phase}' is not a phase of a run.")
    return step.phase
