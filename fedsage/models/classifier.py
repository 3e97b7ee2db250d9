"""The trained classifier: predict, save, load, export. No pickle anywhere."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from torch import nn

from fedsage.config import Kernel, ModelConfig
from fedsage.errors import ConfigError, DataError
from fedsage.files import write_atomically
from fedsage.graph.feature_forms import RAW, FeatureForm, read_form, written_form
from fedsage.graph.graph import Graph
from fedsage.models.backbone import (
    BACKBONES,
    Backbone,
    OwnModule,
    Shape,
    is_ours,
    named,
    new_model,
)
from fedsage.models.calibration import AS_IS, Calibration, calibrations_of
from fedsage.models.parameters import Hidden, Logits, Parameters, under
from fedsage.registry import checksum, is_file
from fedsage.rng import generator
from fedsage.shapes import Array
from fedsage.tables.problems import Problems
from fedsage.tables.schema import Schema, schema_content, schema_of
from fedsage.tables.tables import Scale, Tables, graph_of, pooled_scale

WEIGHTS, CARD = "model.safetensors", "model.json"
FORMAT = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NodeClassifier:
    """A trained classifier F with its weights φ and class names; it predicts and exports."""

    shape: Shape
    phi: Parameters
    class_names: tuple[str, ...]
    schema: Schema | None = None
    scale: Scale | None = None  # of the numbers it was trained on
    calibration: Calibration = AS_IS  # makes probabilities as sure as they are right
    form: FeatureForm = RAW  # of the features that it was trained on
    agreed: str = ""  # the schema's checksum, where the schema itself stayed with the owners

    def __repr__(self) -> str:
        """What it is, and what it takes and gives."""
        weights = sum(weight.numel() for weight in self.phi.values())
        return (
            f"NodeClassifier({self.shape.model.backbone}, {self.shape.num_features:,} features "
            f"→ {self.shape.num_classes} classes, {weights:,} weights)"
        )

    def logits(self, graph: Graph) -> Logits:
        """The scores of every node before softmax, from its full neighborhood."""
        return self.module().on_graph(self.fitting(graph))

    def embeddings(self, graph: Graph) -> Hidden:
        """h^K of every node: the row that the model's head turns into logits.

        With ``model.head=direct`` there is no head, and these are the logits. A module of
        your own needs a layer called ``head``.
        """
        model = self.module()
        inside = model.module if isinstance(model, OwnModule) else model
        head = getattr(inside, "head", None)
        if not isinstance(head, nn.Module):
            raise ConfigError(
                f"{type(inside).__name__} has no layer called 'head'. Call its last layer "
                "self.head: embeddings are what goes into it."
            )
        rows: list[Hidden] = []
        hook = head.register_forward_pre_hook(lambda _, given: rows.append(given[0].detach()))
        try:
            model.on_graph(self.fitting(graph))
        finally:
            hook.remove()
        return torch.cat(rows)

    def to_pyg_module(self) -> nn.Module:
        """The same classifier with PyG's ``SAGEConv``: ``module(x, edge_index)`` gives logits.

        It takes features in the form of training, ``model.form.of(x)``. A module of your own
        is given back as it is, with the trained weights.
        """
        from fedsage.models.export import as_module, pyg_layer

        return as_module(self.module(), pyg_layer, "to_pyg_module")

    def to_onnx(self, path: Path | str) -> None:
        """Write the classifier as ONNX: ``x`` and ``edge_index`` in, ``logits`` out.

        ``x`` has the form of training, ``model.form.of(x)``. It takes graphs of any size.
        Every link must be listed in both directions.
        """
        from fedsage.models.export import MeanLayer, as_module, write_onnx

        module = as_module(self.module(), MeanLayer, "to_onnx")
        write_onnx(module, self.shape.num_features, Path(path))

    def module(self) -> Backbone:
        """The model itself, with its weights."""
        return build(self.shape, self.phi, "cpu", "torch")

    def fitting(self, graph: Graph) -> Graph:
        """The graph with features in the form of training."""
        return self.form.of_graph(self.checked(graph))

    def checked(self, graph: Graph) -> Graph:
        """The same graph; refuses one with other features."""
        if graph.num_features != self.shape.num_features:
            raise DataError(
                f"The model was trained on {self.shape.num_features} features, but this graph "
                f"has {graph.num_features}. Give a graph with the same feature columns."
            )
        return graph

    def predict_proba(self, graph: Graph) -> Float[Array, "V d_y"]:
        """The probability of each class, for every node."""
        return np.asarray(self.calibration.shares(self.logits(graph)).numpy())

    def graph_of(self, tables: Tables) -> Graph:
        """The graph of tables; their numbers are scaled as in training."""
        known = self.schema.sha256 if self.schema else self.agreed
        if known and known != tables.schema.sha256:
            raise DataError(
                "The model was trained with another schema.toml than that of these tables. "
                "Give tables with the same features, categories and classes, and the schema "
                "of the training."
            )
        return graph_of(tables, self.scale or pooled_scale([tables]))

    def predict(self, graph: Graph) -> Int[Array, " V"]:
        """The most likely class of every node."""
        return self.predict_proba(graph).argmax(axis=1)


def build(shape: Shape, phi: Parameters, device: str, kernel: Kernel) -> Backbone:
    """A classifier with the weights φ."""
    model = new_model(shape, generator(0, "overwritten"), device, kernel)
    model.load_state_dict(phi)
    return model


def save_models(models: list[NodeClassifier], folder: Path) -> None:
    """Write one shared model, or the local models of all owners, into ``folder``."""
    tensors = {
        name if len(models) == 1 else f"{i}/{name}": tensor.contiguous()
        for i, model in enumerate(models)
        for name, tensor in model.phi.items()
    }
    card: dict[str, Any] = {
        "format": FORMAT,
        "models": len(models),
        "shape": {
            "num_features": models[0].shape.num_features,
            "num_classes": models[0].shape.num_classes,
            **models[0].shape.model.model_dump(),
        },
        "class_names": models[0].class_names,
        "temperatures": [model.calibration.temperature for model in models],
        "slopes": [model.calibration.slope for model in models],
    }
    if not is_ours(models[0].shape.model.backbone):
        card["own"] = {"sha256": source_of(models[0].shape.model.backbone)}
    if (form := models[0].form).name != RAW.name:
        card["features"] = written_form(form)
    if (schema := models[0].schema) is not None:
        card["schema"] = schema_content(schema)
    elif models[0].agreed:
        card["schema_sha256"] = models[0].agreed
    if (scale := models[0].scale) is not None:
        card["scale"] = {"mean": scale.mean.tolist(), "std": scale.std.tolist()}
    write_atomically(folder / WEIGHTS, lambda file: file.write(safetensors.torch.save(tensors)))
    text = json.dumps(card, indent=2) + "\n"
    write_atomically(folder / CARD, lambda file: file.write(text.encode()))


def load_models(
    folder: Path | str, model: str | type[nn.Module] | None = None
) -> list[NodeClassifier]:
    """The models that a run wrote into ``folder``.

    Args:
        folder: That of the run.
        model: The class of a backbone of your own, or the file that registers it, for models
            that were trained with one. What a folder names is never run by itself.
    """
    folder = Path(folder)
    try:
        card = json.loads((folder / CARD).read_text())
        tensors = safetensors.torch.load((folder / WEIGHTS).read_bytes())
    except OSError as error:
        raise DataError(
            f"{folder} holds no trained model: {Path(error.filename).name} cannot be read "
            f"({error.strerror}). Give the folder that 'fedsage run' wrote to."
        ) from None
    except (SafetensorError, ValueError) as error:
        raise unreadable(folder, error) from None
    try:
        shape = shape_of(folder, card, model)
        count = int(card["models"])
        phis = [tensors] if count == 1 else [under(str(i), tensors) for i in range(count)]
        for phi in phis:
            build(shape, phi, "cpu", "torch")  # refuses names and shapes that do not fit
        names, schema, scale = tuple(card["class_names"]), *tables_of_card(card)
        form, agreed = read_form(card.get("features")), str(card.get("schema_sha256", ""))
        sure = calibrations_of(card, count)
        return [
            NodeClassifier(shape, phi, names, schema, scale, one, form, agreed)
            for phi, one in zip(phis, sure, strict=True)
        ]
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise unreadable(folder, error) from None


def shape_of(folder: Path, card: dict[str, Any], model: str | type[nn.Module] | None) -> Shape:
    """The shape on a card; one of format 1 names no backbone: it is a GraphSage."""
    if card["format"] not in (1, FORMAT):
        raise ValueError(f"{CARD} has format {card['format']}, this version reads {FORMAT}")
    held = dict(card["shape"])
    settings = Shape(held.pop("num_features"), held.pop("num_classes"), ModelConfig(**held))
    name, own = settings.model.backbone, card.get("own", {}).get("sha256")
    if model is None and not is_ours(name):
        raise DataError(
            f"{folder} was trained with somebody's own backbone, '{name}' (SHA-256 of its file "
            f"{own}). Code that a folder names is not run by itself. Say where it is: "
            "load_models(folder, model=MyClass), or fedsage predict --backbone path.py."
        )
    if model is None:
        return settings
    given = named(model)
    if is_file(given) and own and checksum(given) != own:
        raise DataError(
            f"{folder} was trained with another version of {given} (SHA-256 {own[:12]}…, now "
            f"{checksum(given)[:12]}…). Give the one that it was trained with, or the class "
            "itself, load_models(folder, model=MyClass), if the change does not matter."
        )
    chosen = settings.model.model_copy(update={"backbone": given})
    return Shape(settings.num_features, settings.num_classes, chosen)


def source_of(name: str) -> str | None:
    """The SHA-256 of the file that a user's backbone is in; None if it is in none."""
    try:
        file = inspect.getsourcefile(BACKBONES.find(name).thing)
    except (OSError, TypeError):  # typed at a prompt
        return None
    return checksum(file) if file and Path(file).is_file() else None


def tables_of_card(card: dict[str, Any]) -> tuple[Schema | None, Scale | None]:
    """How to read and scale own tables, where a model was trained on some."""
    schema = scale = None
    if "schema" in card:
        problems = Problems(CARD)
        schema = schema_of(card["schema"], problems)
        problems.raise_if_any()
    if "scale" in card:
        scale = Scale(*(np.array(card["scale"][key], dtype=float) for key in ("mean", "std")))
    if schema and scale and len(scale.mean) != len(schema.held_as("numbers")):
        raise ValueError(f"{len(scale.mean)} numbers are scaled, the schema has others")
    return schema, scale


def unreadable(folder: Path, error: Exception) -> DataError:
    """The model's files are there but are not a model."""
    return DataError(
        f"{folder}: the model cannot be read ({error}). Train it again, or copy the folder "
        f"again: {WEIGHTS} and {CARD} belong together."
    )
