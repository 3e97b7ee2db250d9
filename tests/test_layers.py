"""Who may import whom: down, or from its own folder; never sideways, never up."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedsage

PACKAGE = Path(fedsage.__file__).parent
LAYERS = [
    {"config", "errors", "files", "machine", "paper", "presets",
     "readable", "registry", "rng", "shapes"},
    {"kernels"},
    {"graph"},
    {"tables"},
    {"data"},
    {"models", "theory", "privacy"},
    {"protocol"},
    {"mending", "checkpoint"},
    {"engines", "evaluation", "rounds"},
    {"methods"},
    {"rivals"},
    {"runs"},
    {"federation"},
    {"audit"},
    {"report", "reproduce", "bench"},
    {"arena"},
    {"cli"},
    {"__main__"},
]  # fmt: skip
LAYER = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def part_of(source: Path) -> str:
    inside = source.relative_to(PACKAGE)
    return inside.parts[0].removesuffix(".py")


def imports(source: Path) -> list[tuple[int, str]]:
    nodes = list(ast.walk(ast.parse(source.read_text())))
    found = [(n.level, n.module or "") for n in nodes if isinstance(n, ast.ImportFrom)]
    plain = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    found += [(0, name) for name in plain]
    return [(level, module) for level, module in found if level or module.startswith("fedsage")]


def exists(module: str) -> bool:
    place = PACKAGE.parent.joinpath(*module.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(source: Path) -> None:
    part = part_of(source)
    if part == "__init__":
        return
    for level, module in imports(source):
        assert level == 0, "imports have one form: from fedsage.part.module import name"
        assert exists(module), f"{source.name} imports {module}, which does not exist"
        other = module.split(".")[1]
        if other != part and LAYER[part] > 0:
            assert LAYER[other] < LAYER[part], f"{part}/{source.name} imports {other}"
        assert LAYER[other] <= LAYER[part]


def test_evaluation_does_not_know_the_protocol() -> None:
    for source in PACKAGE.glob("evaluation/*.py"):
        parts = {module.split(".")[1] for _, module in imports(source)}
        assert "protocol" not in parts and "engines" not in parts, source.name


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_draw_comes_from_a_global_stream(source: Path) -> None:
    if source.name in ("rng.py", "plain.py"):  # the source of streams; a baseline of the bench
        return
    text = source.read_text()
    for forbidden in ("torch.manual_seed", "torch.rand", "nn.Dropout", "np.random.seed",
                      "np.random.rand", "default_rng("):  # fmt: skip
        assert forbidden not in text
