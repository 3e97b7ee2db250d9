"""FedGCN-like training (Yao et al., NeurIPS 2023, https://arxiv.org/abs/2201.12433)."""

from __future__ import annotations

from fedsage.methods import ETAS, METHODS, Method

METHODS.add(
    "fedgcn",
    Method("fedgcn", mends="links", search={"links.others": ("nothing", "copy"), **ETAS}),
    "FedGCN-like: features summed over known links to other owners before training, once. "
    "Take it with model.backbone=gcn.",
)
