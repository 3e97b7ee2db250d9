"""Settings: frozen, typed, ranged, defaults written once; presets ``paper`` and ``best``.

The defaults in this folder are the paper's settings; ``presets.py`` lists where ours differ.
Functions take the one section that they need, or a plain value or two; never all of it.
"""

from __future__ import annotations

from pydantic import ValidationError, model_validator

from fedsage.config.exchange import FederationConfig, PrivacyConfig, TrafficConfig
from fedsage.config.kinds import (
    Head,
    Inference,
    Kernel,
    Norm,
    OptimizerName,
    Output,
    Privacy,
    Section,
)
from fedsage.config.mending import LinksConfig, MendConfig, NeighGenConfig
from fedsage.config.training import (
    ClassifierConfig,
    DataConfig,
    EvaluationConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
    SyntheticConfig,
)
from fedsage.errors import ConfigError, nearest
from fedsage.presets import (
    PRESETS,
    PRIVATE,
    RENAMED,
    Preset,
    Settings,
    explained,
    overlaid,
    renamed,
)

__all__ = [
    "PRESETS",
    "ClassifierConfig",
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "FederationConfig",
    "Head",
    "Inference",
    "Kernel",
    "LinksConfig",
    "MendConfig",
    "MethodConfig",
    "ModelConfig",
    "NeighGenConfig",
    "Norm",
    "OptimizerName",
    "Output",
    "Preset",
    "Privacy",
    "PrivacyConfig",
    "RunConfig",
    "Section",
    "SyntheticConfig",
    "TrafficConfig",
    "load_config",
]


class Config(Section):
    """All settings of a run."""

    run: RunConfig = RunConfig()
    data: DataConfig = DataConfig()
    synthetic: SyntheticConfig = SyntheticConfig()
    model: ModelConfig = ModelConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    method: MethodConfig = MethodConfig()
    mend: MendConfig = MendConfig()
    neighgen: NeighGenConfig = NeighGenConfig()
    traffic: TrafficConfig = TrafficConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    links: LinksConfig = LinksConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    federation: FederationConfig = FederationConfig()

    @property
    def mends_by(self) -> str:
        """The way of mending, by name; ``auto`` depends on what the server sees.

        The sums by which a common subspace is found show, even hidden, whether a row is in the
        federation. Copies are as good, and send nothing.
        """
        if self.mend.how != "auto":
            return self.mend.how
        return "subspace" if self.privacy.level in ("auto", "open") else "copy"

    @model_validator(mode="after")
    def fits(self) -> Config:
        """Check settings that must agree with each other."""
        if len(self.classifier.fanouts) != len(self.model.widths):
            raise ConfigError(
                f"{len(self.model.widths)} layers (model.widths) need as many fan-outs, but "
                f"classifier.fanouts has {len(self.classifier.fanouts)}. Give one for each."
            )
        if self.neighgen.at_least > self.neighgen.at_most:
            raise ConfigError(
                f"neighgen.at_least is {self.neighgen.at_least}, above neighgen.at_most "
                f"{self.neighgen.at_most}. Raise neighgen.at_most."
            )
        if self.data.train + self.data.val >= 1:
            raise ConfigError(
                f"data.train {self.data.train:g} and data.val {self.data.val:g} leave no test "
                "nodes. Together they must stay below 1."
            )
        return self


def load_config(*layers: Settings, preset: str = "best") -> Config:
    """The preset with ``layers`` laid over it, later ones on top; checked once."""
    if preset not in PRESETS:
        raise ConfigError(f"Unknown preset '{preset}'.{nearest(preset, PRESETS)}")
    given = [renamed(layer, RENAMED) for layer in layers]
    asked = overlaid(*given)
    level = asked.get("privacy", {})
    private = isinstance(level, dict) and level.get("level") == "private"
    below = overlaid(PRESETS[preset], PRIVATE if private else {})
    training = asked.get("classifier", {})
    if isinstance(training, dict) and "eta" in training:  # then GlobSage has that, too
        below = overlaid(below, {"classifier": {"eta_whole": 0.0}})
    merged = overlaid(below, asked, {"run": {"preset": preset}})
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(explained(error.errors()[0], Config)) from None
