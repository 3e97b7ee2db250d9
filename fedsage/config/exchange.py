"""Settings of what owners and server send each other, and who sees it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsage.config.kinds import OrNone, Privacy, Rounds, Section, Width


class TrafficConfig(Section):
    """What owners and server send each other: procedures B and F, and mending."""

    how: Literal["full", "whole", "low-rank"] = Field(
        "full",
        description="full: weights and moments; whole: changes as whole numbers; low-rank: "
        "large layers in a few directions too",
    )
    rank: Width = Field(8, description="directions of a large layer")
    bits: Literal[8, 16] = Field(8, description="of a whole number; more for many owners")
    every: Rounds = Field(5, description="rounds between two measurements of second moments")
    feedback: float = Field(
        0.8, ge=0, le=1, description="share of the unsent rest that is sent later"
    )


class PrivacyConfig(Section):
    """Who can see what of an owner's replies."""

    level: Privacy = Field(
        "auto",
        description="open; sums: the server sees only sums; private: sums with noise; auto: "
        "sums in federations",
    )
    epsilon: float = Field(4.0, gt=0, le=100, description="ε of one node in a private run")
    delta: float = Field(1e-5, gt=0, le=0.01, description="δ of one node in a private run")
    rate: float = Field(
        1.0, gt=0, le=1, description="chance of a node to be in a round of a private run"
    )


class FederationConfig(Section):
    """Owners on separate machines."""

    deadline: float = Field(
        600.0, gt=0, le=10**7, description="seconds that an owner has to answer"
    )
    wait: float = Field(
        86400.0,
        ge=0,
        le=10**7,
        description="seconds to wait for owners that are absent or must decide",
    )
    min_owners: OrNone = Field(0, description="with fewer, the run waits; 0 means all owners")
