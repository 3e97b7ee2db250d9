"""A run as an owner reads it: settings that its policy allows, and what follows from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fedsage.config import Config
from fedsage.data.owned import Owned
from fedsage.errors import ConfigError, PrivacyError
from fedsage.federation.before_training.columns import FEWEST
from fedsage.federation.before_training.earlier_run import own_earlier
from fedsage.federation.before_training.features import check_counted
from fedsage.federation.consent.own_files import with_own_copies
from fedsage.federation.consent.policy import Policy, check, settings_in
from fedsage.files import write_json
from fedsage.graph.split import Split, split_each, split_labels
from fedsage.methods import Method
from fedsage.protocol.agreement import Agreement
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Plan
from fedsage.protocol.sent_log import AGREED, RUN_NAME
from fedsage.rng import with_secret
from fedsage.runs.earlier_run import Earlier
from fedsage.runs.setup import chosen_by_name, plan_of


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A run that an owner's policy allows."""

    run: str
    index: OwnerId
    given: Config  # as the server gave it
    config: Config  # with this owner's copies of the user's files
    files: Mapping[str, str]  # their checksums, by setting
    method: Method
    plan: Plan
    split: Split
    earlier: Earlier | None  # the run that this one begins with

    @property
    def rounds(self) -> int:
        """How many it may take."""
        return self.config.classifier.rounds_c + self.config.neighgen.rounds_gen

    def check_same(self, name: str, data: str, folder: Path) -> None:
        """Refuse to continue a run whose settings or data have changed."""
        settings = self.given.model_dump_json(exclude={"federation"}) + json.dumps(self.files)
        now = {"settings": sha256(settings.encode()).hexdigest(), "data": data}
        path = folder / AGREED
        before = json.loads(path.read_text()) if path.exists() else now
        for what, seen in now.items():
            if before[what] != seen:
                raise ConfigError(
                    f"Owner {name} began this run with other {what} ({before[what][:12]}, "
                    f"now {seen[:12]}). Restore them, or start a new run."
                )
        write_json(path, now)


def proposal_in(
    agreement: Agreement,
    name: str,
    version: str,
    owned: Owned,
    policy: Policy,
    runs: Path,
    secret: str,
) -> Proposal:
    """What the server asks for; refuses what cannot be done or is not allowed.

    Args:
        agreement: The server's words.
        name: Of this owner.
        version: Of fedsage, here.
        owned: This owner's data.
        policy: What runs may ask of it.
        runs: The folder of its runs, in that of the kit's own files.
        secret: Mixed into the seed of the split.
    """
    if not RUN_NAME.fullmatch(agreement.run):
        raise PrivacyError("The run's name may have only letters, digits and '-'.")
    if agreement.version != version:
        raise ConfigError(
            f"The version differs: the server has fedsage {agreement.version}, owner "
            f"{name} has {version}. Install the same one."
        )
    given, files = settings_in(agreement.settings), dict(json.loads(agreement.files))
    earlier: list[Earlier | None] = []

    def drawn() -> Split:
        """Its own split, or one that is drawn; as before for nodes of an earlier run."""
        earlier.append(own_earlier(runs, given, name))
        share = given.data.train, given.data.val, with_secret(given.run.seed, secret)
        if given.privacy.level == "private":  # one node more or less moves no other node
            made = split_each(owned.y, owned.ids, *share, agreement.owner)
        elif owned.shared:  # a node has the same part at all who hold it
            made = split_each(owned.y, owned.ids, *share[:2], given.run.seed, 0)
        else:
            made = split_labels(owned.y, *share, agreement.owner)
        if earlier[0]:
            made = earlier[0].kept_split(made, name, owned.ids)
        return owned.split or made

    split = check(policy, given, name, drawn)
    config = with_own_copies(given, files, runs.parent)
    if config.neighgen.min_batch < FEWEST:
        raise PrivacyError(
            f"The run asks for gradients over {config.neighgen.min_batch} rows; owner "
            f"{name} requires at least {FEWEST} (neighgen.min_batch)."
        )
    check_counted(config)
    method, way, _ = chosen_by_name(config)
    features, names = owned.names
    plan: Plan = plan_of(
        config, method, way, features, len(names), [owned.num_nodes],
        numbers=owned.num_numbers,
    )  # fmt: skip
    return Proposal(
        agreement.run, agreement.owner, given, config, files, method, plan, split, earlier[0]
    )
