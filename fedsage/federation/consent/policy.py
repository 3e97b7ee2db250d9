"""An owner's policy: what a run may ask of it. Anything that no line allows is refused.

It is in ``local/policy.toml`` of the owner's kit, where the owner can change it. A refusal
names the line. The defaults in ``policy_text.py`` apply for every missing line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from fedsage.config import Config, load_config
from fedsage.errors import ConfigError, PrivacyError, nearest
from fedsage.federation.consent.policy_text import TEXT
from fedsage.presets import Settings, explained
from fedsage.readable import counted
from fedsage.registry import is_file

if TYPE_CHECKING:
    from fedsage.graph.split import Split

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

POLICY = "policy.toml"
PLUS = "fedsage+"
OPEN_TO_ALL = ("run.seed",)  # numbers that any run may choose
NOT_HERE = ("synthetic",)  # sections that do not apply to an owner with its own data
SHOWN = 3  # reasons in one refusal
Rules: TypeAlias = Mapping[str, Any]  # by key: words, [smallest, largest], or one number


@dataclass(frozen=True, slots=True)
class Policy:
    """What a run may ask; ``lines`` has the line number of each rule that is in the file."""

    rules: Rules
    lines: Mapping[str, int] = field(default_factory=dict)

    def why(self, key: str) -> str:
        """The rule and line that a refusal is based on."""
        line = f"line {self.lines[key]}" if key in self.lines else "the default"
        return f"({POLICY}, {line}: {key} = {as_toml(self.rules[key])})"


def refusal(policy: Policy, settings: Settings) -> str | None:
    """Why an owner does not agree to a preset with these settings, or None."""
    try:
        found = refused(policy, load_config(settings))
    except ConfigError as error:
        return str(error)
    return "; ".join(found) or None


def settings_in(text: str) -> Config:
    """The settings that an owner is asked to agree to; refuses values out of range."""
    try:
        return Config.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(explained(error.errors()[0], Config)) from None


def check(policy: Policy, config: Config, owner: str, split: Callable[[], Split]) -> Split:
    """The split of nodes for a run that the policy allows; refuses any other run.

    The split is made only after all settings are allowed. A refusal goes to the server, so it
    does not say how many nodes there are.
    """
    found = refused(policy, config)
    made = None if found else split()
    if made is not None:
        found = too_few(policy, made)
    if made is None or found:
        more = f" And {len(found) - SHOWN} more." if len(found) > SHOWN else ""
        raise PrivacyError(
            f"The policy of owner {owner} does not allow this run: "
            f"{'; '.join(found[:SHOWN])}.{more} Change the settings, or ask the owner."
        )
    return made


def refused(policy: Policy, config: Config) -> list[str]:
    """What the policy does not allow, each with the line that forbids it."""
    fewest, least = policy.rules["fewest.owners"], config.federation.min_owners
    owners = min(least or config.data.owners, config.data.owners)
    found = [*other_words(policy, config), *out_of_range(policy, config)]
    if owners < fewest:
        alone = counted(owners, "owner")
        found.append(f"the run may continue with only {alone} {policy.why('fewest.owners')}")
    return found


def other_words(policy: Policy, config: Config) -> Iterator[str]:
    """Methods, presets and the like that are not on the owner's lists."""
    for key, (setting, word) in words_of(config).items():
        if word not in policy.rules[key] and not is_file(word):
            yield f"{setting} is '{word}' {policy.why(key)}"


def words_of(config: Config) -> dict[str, tuple[str, str]]:
    """The settings that the policy has lists for, by key: their names and values."""
    method, how, level = config.run.method, config.mends_by, config.privacy.level
    if method.startswith(PLUS) and method != PLUS:
        method, how = PLUS, method.removeprefix(PLUS)
    found = {
        "methods": ("run.method", method),
        "presets": ("run.preset", config.run.preset),
        "mending": ("mend.how", how),
        "backbones": ("model.backbone", config.model.backbone),
        "rules": ("classifier.aggregate", config.classifier.aggregate),
        "messages": ("traffic.how", config.traffic.how),
        "features": ("data.features", config.data.features),
        "matching": ("links.match", config.links.match),
        "privacy": ("privacy.level", "open" if level == "auto" else level),
    }
    if method == "fedsage":  # does not mend
        del found["mending"]
    if level == "private":  # has a classifier of its own
        del found["backbones"]
    return found


def out_of_range(policy: Policy, config: Config) -> Iterator[str]:
    """Numbers outside the owner's ranges, or without a range and not at their default."""
    usual = dict(numbers_in(Config()))
    for setting, values in numbers_in(config):
        key = f"ranges.{setting}"
        if key not in policy.rules:
            if setting not in OPEN_TO_ALL and values != usual.get(setting):
                yield f"{setting} is {shown(values)}, and no line of {POLICY} allows it"
            continue
        smallest, largest = policy.rules[key]
        if not all(smallest <= value <= largest for value in values):
            yield f"{setting} is {shown(values)} {policy.why(key)}"


def numbers_in(config: Config) -> Iterator[tuple[str, Sequence[float]]]:
    """Every setting that is a number or several."""
    for section, settings in config.model_dump(exclude=set(NOT_HERE)).items():
        for name, value in settings.items():
            values = value if isinstance(value, tuple) else (value,)
            if not isinstance(value, bool | str):
                yield f"{section}.{name}", values


def shown(values: Sequence[float]) -> str:
    """Numbers as in settings."""
    return ", ".join(f"{value:g}" for value in values)


def too_few(policy: Policy, split: Split) -> list[str]:
    """Which kinds of nodes there are too few of."""
    counts = {"training": len(split.train), "validation": len(split.val)}
    return [
        f"too few {kind} nodes {policy.why(f'fewest.{kind}_nodes')}"
        for kind, count in counts.items()
        if count < policy.rules[f"fewest.{kind}_nodes"]
    ]


def read_policy(kit: Path) -> Policy:
    """The policy of a kit; the default if there is no file."""
    file = kit / "local" / POLICY
    try:
        return policy_in(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return DEFAULT
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{POLICY} cannot be read ({error}). Nothing is allowed.") from None


def policy_in(text: str) -> Policy:
    """The policy in a text, with defaults for what it leaves out."""
    try:
        found = dict(flat(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{POLICY} is not valid TOML ({error}). Nothing is allowed."
        ) from None
    lines = lines_of(text)
    for key, value in found.items():
        here = f"line {lines[key]}" if key in lines else "a line"
        if key not in RULES:
            raise ConfigError(f"{POLICY}, {here}: unknown key '{key}'.{nearest(key, RULES)}")
        if kind_of(value) != kind_of(RULES[key]):
            raise ConfigError(
                f"{POLICY}, {here}: {key} is {value!r}, but should look like {key} = "
                f"{as_toml(RULES[key])}."
            )
    return Policy({**RULES, **found}, {key: lines[key] for key in found if key in lines})


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in tables, by its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def kind_of(value: Any) -> str:
    """The kind of a rule: words, a range, or a number."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "words"
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers):
        return "nothing"
    return "a number" if not isinstance(value, list) else f"{len(value)} numbers"


def lines_of(text: str) -> dict[str, int]:
    """The line number of each key."""
    found, above = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            above = f"{header[1]}."
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            found[above + re.sub(r"[\"']", "", key[1])] = number
    return found


def as_toml(value: Any) -> str:
    """A rule as it is written in the file."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def with_rules(changed: Rules) -> str:
    """The text of the default policy with some rules changed."""
    lines, places = TEXT.splitlines(), lines_of(TEXT)
    for key, value in changed.items():
        at = places[key] - 1
        lines[at] = f"{lines[at].partition('=')[0]}= {as_toml(value)}"
    return "\n".join(lines) + "\n"


def permitting(config: Config) -> str:
    """The text of a policy for a rehearsal: few nodes, many runs, and these settings."""
    changed: dict[str, Any] = {key: 10**9 for key in RULES if key.startswith("most.")}
    changed |= {key: 0 for key in RULES if key.startswith("fewest.")}
    changed |= {key: sorted({*RULES[key], word}) for key, (_, word) in words_of(config).items()}
    changed["budget.epsilon"] = 10**9
    changed |= {f"unasked.{key}": ["any"] for key in ("methods", "presets", "privacy", "files")}
    changed["unasked.runs_a_day"] = 10**9
    for setting, values in numbers_in(config):
        if (key := f"ranges.{setting}") in RULES:
            changed[key] = [min(*RULES[key], *values), max(*RULES[key], *values)]
    return with_rules(changed)


RULES: Rules = dict(flat(tomllib.loads(TEXT)))
DEFAULT = Policy(RULES)
