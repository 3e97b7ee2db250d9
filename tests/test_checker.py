"""Types and shapes are checked in the calls that tests make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError

from fedsage.config import load_config
from fedsage.evaluation.evaluate import confusion, mean_and_std
from fedsage.graph.graph import Graph


def test_a_wrong_type_is_found_where_no_shape_is_named() -> None:
    with pytest.raises(BeartypeCallHintViolation):
        mean_and_std("ab")  # type: ignore[arg-type]
    with pytest.raises(BeartypeCallHintViolation):
        load_config(preset=3)  # type: ignore[call-overload]


def test_shapes_that_do_not_fit_each_other_are_found(graph: Graph) -> None:
    with pytest.raises(TypeCheckError):
        confusion(graph.y, graph.y[:7], 3)
    with pytest.raises(TypeCheckError):
        replace(graph, y=np.zeros((2, 2), dtype=np.int64))
