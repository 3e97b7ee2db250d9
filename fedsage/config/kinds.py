"""Kinds of values that settings can have, and what every section is."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

Width: TypeAlias = Annotated[int, Field(ge=1, le=4096)]  # of a layer, or a rank
Layers: TypeAlias = Annotated[tuple[Width, ...], Field(min_length=1, max_length=16)]
Draw: TypeAlias = Annotated[int, Field(ge=1, le=10**4)]  # neighbors, steps
Rounds: TypeAlias = Annotated[int, Field(ge=1, le=10**5)]
OrNone: TypeAlias = Annotated[int, Field(ge=0, le=10**5)]
Batch: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]  # may be everything
Threads: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
Weight: TypeAlias = Annotated[float, Field(ge=0, le=10**6)]  # of a term of a loss
Rate: TypeAlias = Annotated[float, Field(gt=0, le=1000)]  # of learning
Head: TypeAlias = Literal["relu", "l2", "direct"]
Norm: TypeAlias = Literal["none", "l2", "layer"]
OptimizerName: TypeAlias = Literal["adam", "adamw", "sgd"]
Output: TypeAlias = Literal["relu", "sigmoid", "tanh", "linear"]
Inference: TypeAlias = Literal["full", "sampled"]
Kernel: TypeAlias = Literal["auto", "fused", "torch"]
Features: TypeAlias = Literal["raw", "unit", "root", "log", "tfidf", "auto"]
Privacy: TypeAlias = Literal["auto", "open", "sums", "private"]


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A group of settings."""
