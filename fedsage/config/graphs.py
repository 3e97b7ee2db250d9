"""Settings of the graph: where it comes from, who owns which part, how it is queried."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsage.config.kinds import Features, Inference, Section


class DataConfig(Section):
    """The graph, who owns which part of it, and the shares for training and validation."""

    dataset: str = Field(
        "cora", description="a dataset's name, 'synthetic', pyg:CLASS/NAME, ogb:NAME, or a path"
    )
    owners: int = Field(3, gt=0, le=10**5, description="number of owners (M)")
    partition: str = Field(
        "louvain", description="how the graph is cut: louvain, metis, random or label:BETA"
    )
    train: float = Field(0.6, ge=1e-4, lt=0.99, description="share of training nodes")
    val: float = Field(0.2, ge=0, lt=1, description="share of validation nodes")
    split: Literal["own", "drawn"] = Field(
        "own", description="keep the split that a graph came with, or draw one by seed"
    )
    features: Features = Field(
        "raw",
        description="form of features: as they are, rows of one length (unit), roots, "
        "logarithms, tf-idf, or what suits the values (auto)",
    )
    missing_features: float = Field(0.0, ge=0, lt=1, description="share of values lost")
    missing_links: float = Field(0.0, ge=0, lt=1, description="share of links lost")
    few_labels: float = Field(0.0, ge=0, lt=1, description="share of training nodes lost")
    noisy_labels: float = Field(0.0, ge=0, lt=1, description="share of training labels wrong")

    @property
    def stressed(self) -> bool:
        """Whether anything is to be taken away or made wrong."""
        lost = self.missing_features, self.missing_links, self.few_labels, self.noisy_labels
        return any(lost)


class SyntheticConfig(Section):
    """The built-in graph, for --dataset synthetic."""

    nodes: int = Field(3000, ge=20, le=10**9, description="number of nodes")
    degree: float = Field(4.0, gt=0, le=10**4, description="mean number of neighbors")
    classes: int = Field(7, ge=2, le=10**4, description="classes, of a few communities each")
    features: int = Field(1000, ge=2, le=10**7, description="d_x, the number of words")
    words: float = Field(18.0, gt=0, le=10**4, description="mean number of words in a node")
    homophily: float = Field(0.8, ge=0, le=1, description="links inside a community")
    topicality: float = Field(0.25, ge=0, le=1, description="words from the class's topic")
    seed: int = Field(0, description="of the graph, independent of the run's seed")


class EvaluationConfig(Section):
    """How nodes are queried."""

    inference: Inference = Field("sampled", description="neighborhoods that queries use")
    models: Literal["main", "both"] = Field(
        "main", description="both: measure the shared model and every owner's own"
    )
