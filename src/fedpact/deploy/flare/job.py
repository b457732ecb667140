"""FLARE jobs that run pacts: three files of JSON and no code."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from fedpact.deploy.engine import DEFAULT_WAIT

SERVER_CLASS, PARTY_CLASS = (f"fedpact.deploy.flare.components.{name}" for name in ("Server", "Party"))
CONTROLLER, EXECUTOR = (
    f"nvflare.collab.runtime.{name}" for name in ("controller.CollabController", "executor.CollabExecutor")
)
ALLOWED_CLASSES = [SERVER_CLASS, PARTY_CLASS, CONTROLLER, EXECUTOR]  # each by its full name, and no other


def write_job(
    folder: pathlib.Path,
    pacts: Sequence[str],
    parties: Sequence[str],
    *,
    resume: bool = False,
    verify: bool = False,
    wait: float = DEFAULT_WAIT,
    server: str = SERVER_CLASS,
    party: str = PARTY_CLASS,
) -> pathlib.Path:
    """Write a FLARE job that runs pacts one after the other in the same processes.

    - `folder`: the folder to write, which must not exist; its last part is the job's name.
    - `pacts`: names of pacts in every site's own `local/fedpact.json`.
    - `parties`: the sites, which must all be connected for the job to start.
    - `resume`: whether to resume the saved runs (default: False).
    - `verify`: whether to measure the certificates of the saved runs again instead (default: False).
    - `wait`: seconds that a party has for one reply (default: 600).
    - `server`, `party`: dotted names of the components' classes (default: those of fedpact; a site has to allow any other).

    Returns the folder.
    """
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    write_json(
        folder / "meta.json",
        {
            "name": folder.name,
            "resource_spec": {},
            "min_clients": len(parties),
            "mandatory_clients": list(parties),
            "deploy_map": {"app": ["server", *parties]},
        },
    )
    # Arrays, if a message ever has any, are sent inside the message.
    common = {"format_version": 2, "np_download_chunk_size": 0}
    controller_args = {"server_obj_id": "_server", "collab_obj_ids": [], "props": {}}
    executor_args = {"client_obj_id": "_client", "collab_obj_ids": [], "props": {}}
    server_args = {"pacts": list(pacts), "resume": resume, "wait": wait, **({"verify": True} if verify else {})}
    write_json(
        config / "config_fed_server.json",
        {
            **common,
            "dead_client_grace_period": 1.0,
            "workflows": [{"id": "controller", "path": CONTROLLER, "args": controller_args}],
            "components": [{"id": "_server", "path": server, "args": server_args}],
        },
    )
    write_json(
        config / "config_fed_client.json",
        {
            **common,
            "executors": [
                {"tasks": ["*"], "executor": {"id": "executor", "path": EXECUTOR, "args": executor_args}},
            ],
            "components": [{"id": "_client", "path": party, "args": {}}],
        },
    )
    return folder


def write_json(path: pathlib.Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
