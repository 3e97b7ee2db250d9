"""At the server's main process: give an owner that was started again its part of a run.

NVFlare starts an owner's process for a run once, when the run begins. So that an owner can come
back, the server deploys the run to it again and lets it start; the server's own process of the
run learns the owner's new token when it looks for it.
"""

from __future__ import annotations

from typing import Any

from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.private.fed.server.job_runner import JobRunner

APP = "app"
PATIENCE = 10.0  # seconds for an owner to receive the run's settings


def free_of_outcomes(engine: Any, job: str, owners: list[str]) -> None:
    """Let a run neither fail nor wait at its end when an owner's process is gone."""
    for name in owners:
        engine.job_runner.resolve_client_outcome(job, name)


def runs(engine: Any, job: str) -> bool:
    """Whether the server has started a run completely, and it has not ended."""
    return job in engine.run_processes and job in engine.job_runner.running_jobs


def bring_back(engine: Any, job_id: str, name: str) -> None:
    """Start the process of a run at an owner that has none."""
    client, job = engine.get_client_from_name(name), engine.job_runner.running_jobs[job_id]
    members = engine.run_processes[job_id][RunProcessKey.PARTICIPANTS]
    for token in [token for token, one in members.items() if one.name == name]:
        del members[token]
    members[client.token] = client
    with engine.new_context() as fl_ctx:
        data = job.get_application(APP, fl_ctx)
        message = JobRunner._make_deploy_message(job, data, APP, fl_ctx)
        engine.server.admin_server.send_requests_and_get_reply_dict(
            {client.token: message}, timeout_secs=PATIENCE
        )
        _, told = engine.check_client_resources(job, {name: {}}, fl_ctx)[name]
        engine.start_client_job(job, {name: DispatchInfo(APP, {}, told)}, fl_ctx)
