"""`fedpact deploy flare`: what server, sites and admin of an NVIDIA FLARE federation need to run a pact, written into one folder.

    OUT/README.md          the commands, and where everything is
    OUT/server/            the server's kit: its certificate and key, its settings, its copy of the pact
    OUT/<party>/           a site's kit, likewise; for that party only
    OUT/admin/             the kit of the person who starts runs, with the jobs `run` and `resume`
    OUT/provision/         the project, its certificate authority and that authority's key: needed to add a site, for nobody else

FLARE's own provisioning makes the certificates; every connection is mutual TLS.
"""

import json
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import Any

from fedpact.deploy.flare_readme import text

MISSING = 'this needs NVIDIA FLARE, which is not installed: pip install "fedpact[flare]"'
ADMIN = "admin@fedpact.org"
SERVER_FOLDER, ADMIN_FOLDER, PROVISION_FOLDER = "server", "admin", "provision"
RESERVED = {SERVER_FOLDER, ADMIN_FOLDER, PROVISION_FOLDER}
SERVER_CLASS, PARTY_CLASS = "fedpact.deploy.flare.Server", "fedpact.deploy.flare.Party"
CONTROLLER, EXECUTOR = (
    f"nvflare.collab.runtime.{name}" for name in ("controller.CollabController", "executor.CollabExecutor")
)
ALLOWED_CLASSES = [SERVER_CLASS, PARTY_CLASS, CONTROLLER, EXECUTOR]  # each by its full name, and nothing beside
RETRY_SECONDS = 2.0  # FLARE keeps a timer per reply for this long (default 60): a chatty method piles up thousands


def write_kit(
    pact: pathlib.Path,
    parties: Sequence[str],
    out: pathlib.Path,
    *,
    host: str = "localhost",
    port: int = 8002,
    policy: pathlib.Path | None = None,
    timeout: float = 600.0,
    lost_after: float = 60.0,
) -> pathlib.Path:
    """Write the folder `out`: kits for the server, each party and the admin, the jobs, and a README of the commands.

    Args:
        pact: the pact's file; every kit gets a copy, under its own name.
        parties: names of the parties, which become the names of their sites: letters, digits, `-` and `_`.
        out: a folder that is not there yet, or empty.
        host: the server's host name, as the sites and the admin reach it; its certificate is for this name.
        port: the server's one port, for sites and admin.
        policy: a policy file that every party starts from; each may change its own. None: a party without a policy.
        timeout: seconds that a party has for one answer; after that the run stops and names it.
        lost_after: seconds without a sign of life after which the server counts a site as lost.

    Returns the path of the README.
    """
    _check(pact, parties, out, port, timeout, lost_after)
    out.mkdir(parents=True, exist_ok=True)
    kits = provision(parties, out / PROVISION_FOLDER, host, port)
    name = pact.stem
    for who in (SERVER_FOLDER, *parties):
        kit = out / who
        shutil.move(kits[who], kit)
        local = kit / "local"
        shutil.copy(pact, local / pact.name)
        settings = {"pact": f"local/{pact.name}", "folder": f"fedpact/{name}"}
        if policy is not None and who != SERVER_FOLDER:
            shutil.copy(policy, local / "policy.toml")
            settings["policy"] = "local/policy.toml"
        _write(local / "fedpact.json", {name: settings})
        _write(local / "comm_config.json", {"allow_adhoc_conns": False, "streaming_retry_timeout": RETRY_SECONDS})
        _quiet_log(local)
        _forbid_code(local)
        _set_resources(kit, lost_after if who == SERVER_FOLDER else None)
    shutil.move(kits[ADMIN_FOLDER], out / ADMIN_FOLDER)
    for job, resume in (("run", False), ("resume", True)):
        write_job(out / ADMIN_FOLDER / "jobs" / job, [name], parties, resume=resume, timeout=timeout)
    readme = out / "README.md"
    storage = (out / SERVER_FOLDER / "storage").resolve()
    readme.write_text(text(pact, parties, f"{host}:{port}", storage, timeout, lost_after, RETRY_SECONDS))
    return readme


def write_job(
    folder: pathlib.Path,
    pacts: Sequence[str],
    parties: Sequence[str],
    *,
    resume: bool = False,
    timeout: float = 600.0,
    server: str = SERVER_CLASS,
    party: str = PARTY_CLASS,
) -> pathlib.Path:
    """Write a FLARE job that runs `pacts`, one after the other in the same processes: three files of JSON and no code.

    Args:
        folder: where; its last part is the job's name.
        pacts: names of pacts in every site's own `local/fedpact.json`.
        parties: the sites that must all be there.
        resume: go on with the saved runs.
        timeout: seconds that a party has for one answer.
        server, party: the classes that the processes build; what is not fedpact's own, a site has to allow.
    """
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    _write(
        folder / "meta.json",
        {
            "name": folder.name,
            "resource_spec": {},
            "min_clients": len(parties),
            "mandatory_clients": list(parties),
            "deploy_map": {"app": ["server", *parties]},
        },
    )
    inline = {"np_download_chunk_size": 0}  # arrays, if any ever travel, go inside the message
    _write(
        config / "config_fed_server.json",
        {
            "format_version": 2,
            "dead_client_grace_period": 1.0,
            **inline,
            "workflows": [
                {
                    "id": "controller",
                    "path": CONTROLLER,
                    "args": {"server_obj_id": "_server", "collab_obj_ids": [], "props": {}},
                }
            ],
            "components": [
                {
                    "id": "_server",
                    "path": server,
                    "args": {"pacts": list(pacts), "resume": resume, "timeout": timeout},
                }
            ],
        },
    )
    _write(
        config / "config_fed_client.json",
        {
            "format_version": 2,
            **inline,
            "executors": [
                {
                    "tasks": ["*"],
                    "executor": {
                        "id": "executor",
                        "path": EXECUTOR,
                        "args": {"client_obj_id": "_client", "collab_obj_ids": [], "props": {}},
                    },
                }
            ],
            "components": [{"id": "_client", "path": party, "args": {}}],
        },
    )
    return folder


def provision(parties: Sequence[str], folder: pathlib.Path, host: str, port: int) -> dict[str, pathlib.Path]:
    """FLARE's own provisioning: a certificate authority, and a kit with certificate and key for each participant."""
    try:
        from nvflare.lighter.constants import CtxKey
        from nvflare.lighter.prov_utils import prepare_builders
        from nvflare.lighter.provision import prepare_project
        from nvflare.lighter.provisioner import Provisioner
    except ImportError as error:
        raise ImportError(MISSING) from error
    people = [
        {"name": host, "type": "server", "org": SERVER_FOLDER, "fed_learn_port": port, "admin_port": port},
        # A site's organisation is its own: nobody else's admin may start or stop it, or look into its folders.
        *({"name": party, "type": "client", "org": re.sub(r"\W", "_", party)} for party in parties),
        {"name": ADMIN, "type": "admin", "org": SERVER_FOLDER, "role": "lead"},
    ]
    builders = ("workspace.WorkspaceBuilder", "static_file.StaticFileBuilder", "cert.CertBuilder")
    project = {
        "api_version": 3,
        "name": "fedpact",
        "description": "kits for the parties of a pact",
        "participants": people,
        "builders": [{"path": f"nvflare.lighter.impl.{builder}"} for builder in builders]
        + [{"path": "nvflare.lighter.impl.signature.SignatureBuilder"}],
    }
    folder.mkdir(parents=True)
    _write(folder / "project.yml", project)  # JSON is YAML
    said = _Log()
    done = Provisioner(str(folder), prepare_builders(project)).provision(prepare_project(project), logger=said)
    if done.get(CtxKey.BUILD_ERROR):
        raise RuntimeError(f"FLARE could not provision the kits: {'; '.join(said.errors)}")
    made = pathlib.Path(done[CtxKey.CURRENT_PROD_DIR])
    return {
        SERVER_FOLDER: made / host,
        ADMIN_FOLDER: made / ADMIN,
        **{party: made / party for party in parties},
    }


class _Log:
    """What FLARE's provisioning says: the errors are kept, the rest is not for the user."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def debug(self, message: str) -> None: ...

    def info(self, message: str) -> None: ...

    def warning(self, message: str) -> None: ...

    def error(self, message: str) -> None:
        self.errors.append(message)


def _check(
    pact: pathlib.Path, parties: Sequence[str], out: pathlib.Path, port: int, timeout: float, lost_after: float
) -> None:
    if not pact.is_file():
        raise FileNotFoundError(f"no pact at {pact}")
    if not re.fullmatch(r"[A-Za-z_]\w*", pact.stem) and not re.fullmatch(r"[\w-]+", pact.stem):
        raise ValueError(f"{pact.name}: a pact's file name may have letters, digits, '-' and '_' only")
    if not parties or len(set(parties)) != len(parties):
        raise ValueError(f"parties {list(parties)}: give each party once, and at least one")
    for party in parties:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", party):
            raise ValueError(f"party {party!r}: FLARE's names for sites may have letters, digits, '-' and '_' only")
        if party in RESERVED:
            raise ValueError(
                f"party {party!r}: this name is taken by a folder of the kit ({', '.join(sorted(RESERVED))})"
            )
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty; kits hold keys, and old and new ones do not mix: give a new folder")
    if not 0 < port < 65536:
        raise ValueError(f"port {port}: must be between 1 and 65535")
    if not timeout > 0:
        raise ValueError(f"timeout {timeout}: must be > 0; it is in seconds, for one answer of a party")
    if not lost_after >= 5:
        raise ValueError(
            f"lost_after {lost_after}: must be >= 5 seconds; a site gives a sign of life every few seconds"
        )


def _write(path: pathlib.Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _default(local: pathlib.Path, name: str) -> Any:
    return json.loads((local / f"{name}.default").read_text())


def _quiet_log(local: pathlib.Path) -> None:
    """FLARE logs every call at INFO, which costs more than the call."""
    config = _default(local, "log_config.json")
    config["loggers"]["root"]["level"] = "WARNING"
    _write(local / "log_config.json", config)


def _forbid_code(local: pathlib.Path) -> None:
    """No job may bring code, whoever submits it."""
    config = _default(local, "authorization.json")
    rights = config["permissions"]
    rights["project_admin"] = {**dict.fromkeys(rights["lead"], "any"), "byoc": "none"}
    for role in ("org_admin", "lead"):
        rights[role]["byoc"] = "none"
    _write(local / "authorization.json", config)


def _set_resources(kit: pathlib.Path, lost_after: float | None) -> None:
    """Only fedpact's classes may be built; the server (`lost_after` given) stores its jobs in its own kit."""
    local = kit / "local"
    config = _default(local, "resources.json")
    config["class_allow_list"] = ALLOWED_CLASSES
    if lost_after is not None:
        storage = kit.resolve() / "storage"
        config["servers"][0]["heart_beat_timeout"] = lost_after
        config["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
        parts = {part["id"]: part.setdefault("args", {}) for part in config["components"]}
        parts["job_manager"]["uri_root"] = str(storage / "jobs")
        # One job at a time: two would write the same state. Look every second whether all sites are there.
        parts["job_scheduler"].update(
            max_jobs=1, min_schedule_interval=1.0, max_schedule_interval=5.0, max_schedule_count=10**6
        )
    else:
        config["allow_log_streaming"] = False  # a site's log stays at the site
        config["components"] = [part for part in config["components"] if part["id"] != "site_log_streamer"]
    _write(local / "resources.json", config)
