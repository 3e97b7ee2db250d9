"""Array types named after the paper's dimensions. Tests check them at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

Array: TypeAlias = np.ndarray
SparseMatrix: TypeAlias = csr_array

if TYPE_CHECKING:
    NodeFeatures: TypeAlias = Any  # SciPy has no types of its own
    FeatureRows: TypeAlias = Any
else:
    NodeFeatures = csr_array | Float[Array, "V d_x"]  # X, sparse or dense
    FeatureRows = csr_array | Float[Array, "rows d_x"]  # some rows of X, or generated ones
NodeLabels: TypeAlias = Int[Array, " V"]  # Y, class indices; -1 if unlabelled
NodeIds: TypeAlias = Int[Array, " _"]  # some nodes, by index
EdgeIndex: TypeAlias = Int[Array, "2 E"]  # links, each once or in both directions
LinksInto: TypeAlias = Int[Array, "2 E_into"]  # from new nodes to those that are there
