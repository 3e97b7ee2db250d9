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
    from fedsage.data.load import load as load
    from fedsage.data.load import load_owner_tables as load_owner_tables
    from fedsage.data.npz import load_graph as load_graph
    from fedsage.data.npz import save_graph as save_graph
    from fedsage.data.owned import load_owners as load_owners
    from fedsage.errors import FedSageError as FedSageError
    from fedsage.graph.graph import Graph as Graph
    from fedsage.graph.mend import Generated as Generated
    from fedsage.graph.partition import Partition as Partition
    from fedsage.graph.partition import partition as partition
    from fedsage.graph.split import Split as Split
    from fedsage.mending.way import way_of_mending as way_of_mending
    from fedsage.methods import Method as Method
    from fedsage.methods import fedsage as fedsage
    from fedsage.methods import method as method
    from fedsage.models.backbone import Backbone as Backbone
    from fedsage.models.backbone import backbone as backbone
    from fedsage.models.classifier import NodeClassifier as NodeClassifier
    from fedsage.models.classifier import load_models as load_models
    from fedsage.models.train import LocalTerm as LocalTerm
    from fedsage.protocol.agreement import Ready as Ready
    from fedsage.protocol.exchange import Exchange as Exchange
    from fedsage.protocol.messages import Ask as Ask
    from fedsage.protocol.messages import Classifier as Classifier
    from fedsage.protocol.messages import ClassifierUpdate as ClassifierUpdate
    from fedsage.protocol.messages import Hits as Hits
    from fedsage.protocol.messages import Mended as Mended
    from fedsage.protocol.messages import message as message
    from fedsage.protocol.owner import DataOwner as DataOwner
    from fedsage.protocol.personal import Personal as Personal
    from fedsage.protocol.personal import PersonalOwner as PersonalOwner
    from fedsage.protocol.procedures import Open as Open
    from fedsage.protocol.procedures import Sealed as Sealed
    from fedsage.protocol.procedures import Summed as Summed
    from fedsage.protocol.procedures import procedure as procedure
    from fedsage.protocol.server import ByModels as ByModels
    from fedsage.protocol.server import aggregation_rule as aggregation_rule
    from fedsage.rounds import Outcome as Outcome
    from fedsage.runs.compare import compare as compare
    from fedsage.runs.comparison import Comparison as Comparison
    from fedsage.runs.comparison import Difference as Difference
    from fedsage.runs.events import Event as Event
    from fedsage.runs.events import HistoryLine as HistoryLine
    from fedsage.runs.result import History as History
    from fedsage.runs.result import RunResult as RunResult
    from fedsage.runs.result import load_result as load_result
    from fedsage.runs.result import save as save
    from fedsage.runs.run import run as run
    from fedsage.tables.schema import Schema as Schema
    from fedsage.tables.schema import read_schema as read_schema
    from fedsage.tables.tables import read_tables as read_tables

HOME = {
    "Ask": "fedsage.protocol.messages",
    "Backbone": "fedsage.models.backbone",
    "ByModels": "fedsage.protocol.server",
    "Classifier": "fedsage.protocol.messages",
    "ClassifierUpdate": "fedsage.protocol.messages",
    "Comparison": "fedsage.runs.comparison",
    "DataOwner": "fedsage.protocol.owner",
    "Difference": "fedsage.runs.comparison",
    "Event": "fedsage.runs.events",
    "Exchange": "fedsage.protocol.exchange",
    "FedSageError": "fedsage.errors",
    "Generated": "fedsage.graph.mend",
    "Graph": "fedsage.graph.graph",
    "Hits": "fedsage.protocol.messages",
    "History": "fedsage.runs.result",
    "HistoryLine": "fedsage.runs.events",
    "LocalTerm": "fedsage.models.train",
    "Mended": "fedsage.protocol.messages",
    "Method": "fedsage.methods",
    "NodeClassifier": "fedsage.models.classifier",
    "Open": "fedsage.protocol.procedures",
    "Outcome": "fedsage.rounds",
    "Partition": "fedsage.graph.partition",
    "Personal": "fedsage.protocol.personal",
    "PersonalOwner": "fedsage.protocol.personal",
    "Ready": "fedsage.protocol.agreement",
    "RunResult": "fedsage.runs.result",
    "Schema": "fedsage.tables.schema",
    "Sealed": "fedsage.protocol.procedures",
    "Split": "fedsage.graph.split",
    "Summed": "fedsage.protocol.procedures",
    "aggregation_rule": "fedsage.protocol.server",
    "backbone": "fedsage.models.backbone",
    "compare": "fedsage.runs.compare",
    "fedsage": "fedsage.methods",
    "load": "fedsage.data.load",
    "load_graph": "fedsage.data.npz",
    "load_models": "fedsage.models.classifier",
    "load_owner_tables": "fedsage.data.load",
    "load_owners": "fedsage.data.owned",
    "load_result": "fedsage.runs.result",
    "message": "fedsage.protocol.messages",
    "method": "fedsage.methods",
    "partition": "fedsage.graph.partition",
    "procedure": "fedsage.protocol.procedures",
    "read_schema": "fedsage.tables.schema",
    "read_tables": "fedsage.tables.tables",
    "run": "fedsage.runs.run",
    "save": "fedsage.runs.result",
    "save_graph": "fedsage.data.npz",
    "way_of_mending": "fedsage.mending.way",
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
