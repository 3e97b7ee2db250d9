"""Subgraph federated learning: FedSage+ for owners who each hold a part of one graph.

>>> import fedsage as fs
>>> graph = fs.load("synthetic")
>>> owners = fs.partition(graph, num_owners=3, how="louvain", seed=0)
>>> result = fs.run(owners, method="fedsage+", seed=0, evaluate_on=graph)

Names are imported when they are first used, so that ``import fedsage`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsage.custom import Method as Method
    from fedsage.data.load import load as load
    from fedsage.data.load import load_owner_tables as load_owner_tables
    from fedsage.data.npz import load_graph as load_graph
    from fedsage.data.npz import save_graph as save_graph
    from fedsage.data.owned import load_owners as load_owners
    from fedsage.errors import FedSageError as FedSageError
    from fedsage.evaluation.results import HistoryLine as HistoryLine
    from fedsage.graph.graph import Graph as Graph
    from fedsage.graph.partition import Partition as Partition
    from fedsage.graph.partition import partition as partition
    from fedsage.models.backbone import Backbone as Backbone
    from fedsage.models.backbone import backbone as backbone
    from fedsage.models.classifier import NodeClassifier as NodeClassifier
    from fedsage.models.classifier import load_models as load_models
    from fedsage.protocol.messages import Ask as Ask
    from fedsage.protocol.messages import ClassifierUpdate as ClassifierUpdate
    from fedsage.protocol.owner import DataOwner as DataOwner
    from fedsage.runs import RunResult as RunResult
    from fedsage.runs import run as run
    from fedsage.tables.schema import Schema as Schema
    from fedsage.tables.schema import read_schema as read_schema
    from fedsage.tables.tables import read_tables as read_tables

HOME = {
    "Backbone": "fedsage.models.backbone",
    "backbone": "fedsage.models.backbone",
    "Ask": "fedsage.protocol.messages",
    "ClassifierUpdate": "fedsage.protocol.messages",
    "DataOwner": "fedsage.protocol.owner",
    "Method": "fedsage.custom",
    "FedSageError": "fedsage.errors",
    "Graph": "fedsage.graph.graph",
    "HistoryLine": "fedsage.evaluation.results",
    "NodeClassifier": "fedsage.models.classifier",
    "Partition": "fedsage.graph.partition",
    "RunResult": "fedsage.runs",
    "Schema": "fedsage.tables.schema",
    "load": "fedsage.data.load",
    "load_graph": "fedsage.data.npz",
    "load_owner_tables": "fedsage.data.load",
    "load_owners": "fedsage.data.owned",
    "load_models": "fedsage.models.classifier",
    "partition": "fedsage.graph.partition",
    "read_schema": "fedsage.tables.schema",
    "read_tables": "fedsage.tables.tables",
    "run": "fedsage.runs",
    "save_graph": "fedsage.data.npz",
}

__all__ = sorted(HOME)


def __getattr__(name: str) -> object:
    """Import a public name from where it lives."""
    if name == "__version__":
        return version("fedsage")
    if name not in HOME:
        raise AttributeError(f"module 'fedsage' has no attribute '{name}'")
    return getattr(import_module(HOME[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
