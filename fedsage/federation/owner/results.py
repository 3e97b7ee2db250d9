"""What a run leaves with an owner, on its own disk only: models, its graph, predictions."""

from __future__ import annotations

from pathlib import Path

from fedsage.data.owned import Owned
from fedsage.errors import ProtocolError
from fedsage.graph.feature_forms import FeatureForm
from fedsage.methods import find_method
from fedsage.models.calibration import Calibration
from fedsage.models.classifier import NodeClassifier, save_models
from fedsage.models.parameters import parameters_of
from fedsage.protocol.agreement import Finish
from fedsage.protocol.messages import View
from fedsage.protocol.owner import DataOwner
from fedsage.rounds import VIEWS
from fedsage.runs.predictions import save_predictions
from fedsage.runs.stored_graph import answering_of, save_answering
from fedsage.tables.tables import Scale


def save_outcome(
    owner: DataOwner,
    name: str,
    owned: Owned,
    scale: Scale | None,
    form: FeatureForm,
    finish: Finish,
    folder: Path,
) -> Path:
    """Write model, graph and predictions; returns the file of predictions."""
    schema = owned.schema
    phi, held = parameters_of(owner.model), scale if schema else None
    model = NodeClassifier(
        owner.plan.shape, phi, owned.names[1], schema, held, sure_as(finish), form
    )
    save_models([model], folder)
    way = find_method(owner.config.run.method).way(owner.config.mends_by).name
    answering = answering_of(owner, name, owned.ids, view_of(finish), way)
    save_answering(answering, folder)
    return save_predictions(model, answering, folder)


def sure_as(finish: Finish) -> Calibration:
    """How sure answers may be, as the end of a run says; refuses what cannot be used."""
    told = Calibration(finish.temperature, finish.slope)
    if not told.usable:
        raise ProtocolError(f"Probabilities cannot be calibrated by {told}.")
    return told


def view_of(finish: Finish) -> View:
    """The view that the end of a run names; refuses any other word."""
    for view in VIEWS:
        if finish.view == view:
            return view
    raise ProtocolError(f"'{finish.view}' is not a view of an owner's graphs.")
