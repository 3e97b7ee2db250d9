"""The coordinator's connection to the server."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from fedsage.errors import ConfigError, FedSageError
from fedsage.federation.kits.certificates import check_certificate
from fedsage.federation.kits.kit import COORDINATOR, Kit, federation_of
from fedsage.federation.status.status import OwnerStatus, Status


class Unreachable(FedSageError):
    """The server does not answer."""


@contextmanager
def session(kit: Kit, timeout: float = 20.0) -> Iterator[Any]:
    """A connection to the server as the coordinator."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session
    from nvflare.fuel.utils.config_service import ConfigService

    if kit.role != "coordinator":
        raise ConfigError(f"{kit.path} is the kit of {kit.name}, not of the coordinator.")
    where = federation_of(kit)["server"]
    check_certificate(kit)
    # otherwise NVFlare takes settings from any file of that name below the current folder
    ConfigService.initialize({}, [str(kit.path / "startup")])
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # we report problems ourselves
    try:
        with redirect_stdout(io.StringIO()):  # hides NVFlare's message about connecting
            found = new_secure_session(COORDINATOR, str(kit.path), timeout=timeout)
    except Exception as error:
        raise Unreachable(
            f"The server at {where} cannot be reached ({type(error).__name__}). Is it running "
            "('fedsage federation start' with its kit), and is the port open?"
        ) from None
    try:
        yield found
    finally:
        found.close()


@contextmanager
def looking(kit: Kit) -> Iterator[Callable[[], Status]]:
    """A way to ask the server what it sees, for as long as the connection lasts.

    The status is that of a server which does not answer, if it does not.
    """
    from fedsage.federation.presence import LOOK, ask

    owners = {name: OwnerStatus() for name in federation_of(kit)["owners"]}
    with session(kit) as talk:
        cell = talk.api.cell
        yield lambda: ask(cell, LOOK) or Status(server="not answering", owners=owners)
