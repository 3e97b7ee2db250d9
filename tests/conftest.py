"""Fixtures are loaded where tests run: the process that only hands them out needs none."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures; importing fedsage with every call checked takes seconds."""
    hands_out = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not hands_out:
        config.pluginmanager.import_plugin("tests.fixtures")
