"""Run a function in a separate Python process, to measure its start and its memory.

``python -m fedsage.bench.fresh MODULE:FUNCTION ARGUMENTS`` is that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def in_fresh_process(work: Callable[..., Any], **arguments: Any) -> Any:
    """What ``work`` returns in a fresh process; arguments and answer are passed as JSON.

    ``work`` must be a function of a module, so that the process finds it by name.
    """
    name = f"{work.__module__}:{work.__qualname__}"
    command = [sys.executable, "-m", "fedsage.bench.fresh", name, json.dumps(arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main(name: str, arguments: str) -> None:
    """Call the function called ``name`` and print its answer."""
    module, _, function = name.partition(":")
    answer = getattr(import_module(module), function)(**json.loads(arguments))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
