"""What the coordinator submits: JSON files for NVFlare, and no code."""

from __future__ import annotations

from pathlib import Path

from fedsage.config import Config
from fedsage.federation.consent.own_files import checksums_of
from fedsage.federation.nvflare_server import GROUP
from fedsage.files import write_json


def seconds_between_questions(owners: int) -> float:
    """How long an owner without a task waits before it asks the server again.

    Fifty owners that ask fifty times a second leave the server no time for the answers, so
    many owners together ask a hundred times a second.
    """
    return max(0.02, min(owners**2 / 5000, owners / 100))


def write_job(
    folder: Path, config: Config, owners: list[str], run: str, command: str, members: str
) -> None:
    """Write what NVFlare needs: JSON files, and no code; ``members`` is their signed list."""
    fed = config.federation
    least = fed.min_owners or len(owners)
    controller = {
        "settings": config.model_dump_json(), "run": run, "owners": owners,
        "deadline": fed.deadline, "min_owners": least, "wait": fed.wait, "command": command,
        "files": checksums_of(config), "members": members,
    }  # fmt: skip
    server = {
        "format_version": 2,
        "server": {
            "heart_beat_timeout": 600,
            "task_request_interval": seconds_between_questions(len(owners)),
        },
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
        "workflows": [
            {
                "id": GROUP,
                "path": "fedsage.federation.nvflare_server.FedSageController",
                "args": controller,
            }
        ],
    }
    executor = {
        "path": "fedsage.federation.nvflare_owner.FedSageExecutor",
        "args": {"members": members},
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "task_result_filters": [],
        "task_data_filters": [],
        "components": [],
    }
    config_folder = folder / "app" / "config"
    write_json(config_folder / "config_fed_server.json", server)
    write_json(config_folder / "config_fed_client.json", client)
    write_json(folder / "meta.json", {
        "name": GROUP, "resource_spec": {}, "min_clients": 1,
        "deploy_map": {"app": ["server", *owners]},
    })  # fmt: skip
