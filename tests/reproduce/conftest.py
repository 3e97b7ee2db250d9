from tests.cli.conftest import fedsage  # noqa: F401
