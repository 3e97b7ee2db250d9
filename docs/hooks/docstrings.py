"""Docstrings as the site shows them: roles of reStructuredText become Markdown.

Loaded by mkdocstrings (see ``mkdocs.yml``); not part of the package.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


def in_markdown(text: str) -> str:
    """The same docstring with links, formulas and code as Markdown writes them."""
    text = re.sub(r":(?:class|func|meth|mod|attr):`~?(fedsage\.[\w.]+)`", link, text)
    text = re.sub(r":(?:class|func|meth|mod|attr):`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r":math:`([^`]+)`", lambda found: f"`{plain(found[1])}`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def link(found: re.Match[str]) -> str:
    """A public name leads to its entry; any other is shown as code."""
    name = found[1]
    if name.count(".") == 1:
        return f"[`fs.{name.removeprefix('fedsage.')}`][{name}]"
    return f"`{name}`"


def plain(formula: str) -> str:
    """A formula of TeX in a line of text."""
    for word, sign in SIGNS.items():
        formula = formula.replace(word, sign)
    return re.sub(r"\\(?:mathrm|text|tilde|hat)\{([^}]*)\}", r"\1", formula)


SIGNS = {
    r"\setminus": "∖", r"\{": "{", r"\}": "}", r"\varepsilon": "ε", r"\lambda": "λ",
    r"\alpha": "α", r"\theta": "θ", r"\phi": "φ", r"\sigma": "σ", r"\sum": "Σ", r"\in": "∈",
    r"\cdot": "·", r"\times": "×", r"\top": "ᵀ", r"\le": "≤", r"\ge": "≥", r"\,": " ",
}  # fmt: skip


class Roles(Extension):
    """Rewrites every docstring once it has been read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """A function, class, attribute or module with a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)
