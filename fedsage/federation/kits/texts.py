"""What a kit's ``readme.txt`` says, and where NVFlare writes its own log."""

from __future__ import annotations

from typing import Any

ABOUT = """This is a startup kit of fedsage: the identity of {who} in a federation.

It holds a private key. Whoever has this folder can act as {who}: keep it to yourself, and do
not put it under version control. {use}

  fedsage federation status {kit}

shows who is connected, what is running and who is waited for.

  startup/             certificate, private key, and where the server is
  local/               settings of this party{policy}
  fedsage/fedsage.log  what happened here, one line an event
  fedsage/runs/        what runs left here; back this up
  log.txt              NVFlare's own log, for people who look for a fault

docs/federation.md of fedsage says all the rest.
"""
WORDS = {
    "server": {
        "who": "the server",
        "use": "Start and stop it with 'fedsage federation start' and 'stop'.",
        "policy": "",
    },
    "owner": {
        "who": "a data owner",
        "use": "Start it with 'fedsage federation start KIT --data FOLDER'.",
        "policy": "; policy.toml says what runs may ask of you",
    },
    "coordinator": {
        "who": "the coordinator",
        "use": "Use it with 'fedsage federation run --kit KIT'.",
        "policy": "",
    },
}
FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": FORMAT}
    },
    "handlers": {
        "file": {
            "class": "logging.handlers.RotatingFileHandler",
            "level": "DEBUG",
            "formatter": "plain",
            "filename": "log.txt",
            "mode": "a",
            "maxBytes": 5_000_000,
            "backupCount": 3,
        }
    },
    "loggers": {
        "root": {"level": "WARNING", "handlers": ["file"]},
        "nvflare.fuel.f3.drivers.driver_manager": {"level": "ERROR"},  # ours are not all there
    },
}
