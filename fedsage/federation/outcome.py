"""What a run leaves with an owner, on its own disk only: models, its graph, predictions."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import safetensors.torch
import torch

from fedsage.data.npz import save_graph
from fedsage.data.owned import Owned
from fedsage.files import write_atomically
from fedsage.models.classifier import NodeClassifier, save_models
from fedsage.models.gen_learner import GenLearner
from fedsage.models.parameters import Logits, parameters_of
from fedsage.protocol.owner import DataOwner
from fedsage.tables.tables import Scale

NEIGHGEN, MENDED, PREDICTIONS = "neighgen.safetensors", "mended.npz", "predictions.csv"


def save_outcome(
    owner: DataOwner, owned: Owned, scale: Scale | None, view: str, folder: Path
) -> Path:
    """Write model, NeighGen, mended graph and predictions; returns the file of predictions."""
    names, schema = owned.names[1], owned.schema
    phi, held = parameters_of(owner.model), scale if schema else None
    save_models([NodeClassifier(owner.plan.shape, phi, names, schema, held)], folder)
    if isinstance(learner := owner.parts.get("neighgen"), GenLearner):
        weights = safetensors.torch.save(parameters_of(learner.neighgen))
        write_atomically(folder / NEIGHGEN, lambda file: file.write(weights))
    if owner.mended is not None:
        save_graph(owner.mended, folder / MENDED)
    text = predictions(owner, view, list(owned.ids), names)
    write_atomically(folder / PREDICTIONS, lambda file: file.write(text.encode()))
    return folder / PREDICTIONS


def predictions(owner: DataOwner, view: str, ids: list[str], names: tuple[str, ...]) -> str:
    """The most likely class of every node of the owner, with or without a label, as CSV."""
    nodes = torch.arange(len(ids)).numpy()
    plain = owner.answers(owner.graph, nodes)
    mended = plain if owner.mended is None else owner.answers(owner.mended, nodes)
    chosen: dict[str, Logits] = {"plain": plain, "mended": mended, "both": plain + mended}
    shares = chosen[view].softmax(dim=1)
    best = shares.argmax(dim=1).tolist()
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["id", "predicted", "probability"])
    for v, c in enumerate(best):
        table.writerow([ids[v], names[c], f"{float(shares[v, c]):.4f}"])
    return text.getvalue()
