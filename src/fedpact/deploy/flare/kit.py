"""`fedpact deploy flare`: what server, sites and admin of an NVIDIA FLARE federation need to run a pact, in one folder.

    OUT/README.md          the commands, and where everything is
    OUT/server/            the server's kit: its certificate and key, its settings, its copy of the pact
    OUT/<party>/           a site's kit, likewise; for that party only
    OUT/admin/             the kit of the person who starts runs, with the jobs `run`, `resume` and `verify`
    OUT/provision/         the project, its certificate authority and that authority's key: needed to add a site, for nobody else

FLARE's own provisioning makes the certificates; every connection is mutual TLS. Only the owner of OUT can read what is in it:
folders are 0700, files 0600. Keep these modes when you hand a kit on (tar and scp -p do).
"""

import json
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import Any

from fedpact.deploy.engine import DEFAULT_WAIT, ENGINES, check_kit_arguments
from fedpact.deploy.flare import NOT_INSTALLED
from fedpact.deploy.flare.job import ALLOWED_CLASSES, write_job, write_json
from fedpact.deploy.flare.readme import readme_text
from fedpact.deploy.service_files import write_service_files
from fedpact.files import OWN_FOLDER, make_private, private_folder

ADMIN = "admin@fedpact.org"
SERVER_FOLDER, ADMIN_FOLDER, PROVISION_FOLDER = "server", "admin", "provision"
RETRY_SECONDS = (
    2.0  # FLARE keeps a timer per reply for this long (default 60): a method of many messages piles up thousands
)
BUILDERS = (
    "workspace.WorkspaceBuilder",
    "static_file.StaticFileBuilder",
    "cert.CertBuilder",
    "signature.SignatureBuilder",
)


def write_kit(
    pact: pathlib.Path,
    parties: Sequence[str],
    out: pathlib.Path,
    *,
    server: str = "localhost",
    port: int = ENGINES["flare"].default_port,
    wait: float = DEFAULT_WAIT,
    policy: pathlib.Path | None = None,
    lost_after: float = 60.0,
) -> pathlib.Path:
    """Write kits for the server, each party and the admin, the jobs, and a README with the commands.

    - `pact`: the pact file; every kit gets a copy, under its own name.
    - `parties`: names of the parties, which become the names of their sites: letters, digits, `-` and `_`.
    - `out`: the folder to write; must be empty or not exist yet.
    - `server`: the server's host name, as the sites and the admin reach it; its certificate is for this name (default:
      localhost).
    - `port`: the server's one TCP port, for sites and admin (default: 8002).
    - `wait`: seconds that a party has for one reply; after that the run stops and names the party (default: 600).
    - `policy`: a policy file that every party starts from; each may change its own (default: None, no policy).
    - `lost_after`: seconds without a heartbeat after which the server counts a site as lost, at least 5 (default: 60).

    Returns the path of the README.

    Raises FileNotFoundError where there is no pact file, FileExistsError where `out` is not empty, ValueError where another
    argument is invalid, ImportError where FLARE is not installed, and RuntimeError where FLARE's provisioning failed.
    """
    reserved = (SERVER_FOLDER, ADMIN_FOLDER, PROVISION_FOLDER)
    pattern = r"[A-Za-z0-9][A-Za-z0-9_-]*"  # FLARE's own rule for the names of sites
    check_kit_arguments(pact, parties, out, port=port, wait=wait, reserved=reserved, party_pattern=pattern)
    if not re.fullmatch(r"[\w-]+", pact.stem):
        raise ValueError(f"{pact.name}: the name of a pact file has letters, digits, '-' and '_' only")
    if not lost_after >= 5:
        raise ValueError(f"lost_after={lost_after}: must be >= 5 seconds; a site sends a heartbeat every few seconds")
    private_folder(out).chmod(OWN_FOLDER)  # before the first key is in it
    kits = provision(parties, out / PROVISION_FOLDER, server, port)
    name = pact.stem
    for owner in (SERVER_FOLDER, *parties):
        kit = out / owner
        shutil.move(kits[owner], kit)
        local = kit / "local"
        shutil.copy(pact, local / pact.name)
        settings = {"pact": f"local/{pact.name}", "folder": f"fedpact/{name}"}
        if policy is not None and owner != SERVER_FOLDER:
            shutil.copy(policy, local / "policy.toml")
            settings["policy"] = "local/policy.toml"
        write_json(local / "fedpact.json", {name: settings})
        write_json(local / "comm_config.json", {"allow_adhoc_conns": False, "streaming_retry_timeout": RETRY_SECONDS})
        _log_little(local)
        _forbid_code(local)
        _set_resources(kit, lost_after if owner == SERVER_FOLDER else None)
        listens = port if owner == SERVER_FOLDER else None
        write_service_files(kit, owner, "flare", "startup/sub_start.sh --once", listens)
    shutil.move(kits[ADMIN_FOLDER], out / ADMIN_FOLDER)
    for job in ("run", "resume", "verify"):
        folder = out / ADMIN_FOLDER / "jobs" / job
        write_job(folder, [name], parties, resume=job == "resume", verify=job == "verify", wait=wait)
    readme = out / "README.md"
    storage = (out / SERVER_FOLDER / "storage").resolve()
    readme.write_text(readme_text(pact, parties, f"{server}:{port}", storage, wait, lost_after, RETRY_SECONDS))
    make_private(out)
    return readme


def provision(parties: Sequence[str], folder: pathlib.Path, server: str, port: int) -> dict[str, pathlib.Path]:
    """Run FLARE's own provisioning: a certificate authority, and a kit with certificate and key for each participant.

    - `parties`: names of the sites.
    - `folder`: the folder for the project and what is made; must not exist yet.
    - `server`: the server's host name.
    - `port`: the server's TCP port.

    Returns the folder of every participant's kit: of the server, the admin and each party.

    Raises ImportError where FLARE is not installed, and RuntimeError where the provisioning failed.
    """
    try:
        from nvflare.lighter.constants import CtxKey
        from nvflare.lighter.prov_utils import prepare_builders
        from nvflare.lighter.provision import prepare_project
        from nvflare.lighter.provisioner import Provisioner
    except ImportError as error:
        raise ImportError(NOT_INSTALLED) from error
    participants = [
        {"name": server, "type": "server", "org": SERVER_FOLDER, "fed_learn_port": port, "admin_port": port},
        # A site's organisation is its own: nobody else's admin may start or stop it, or look into its folders.
        *({"name": party, "type": "client", "org": re.sub(r"\W", "_", party)} for party in parties),
        {"name": ADMIN, "type": "admin", "org": SERVER_FOLDER, "role": "lead"},
    ]
    project = {
        "api_version": 3,
        "name": "fedpact",
        "description": "kits for the parties of a pact",
        "participants": participants,
        "builders": [{"path": f"nvflare.lighter.impl.{builder}"} for builder in BUILDERS],
    }
    folder.mkdir(parents=True)
    write_json(folder / "project.yml", project)  # JSON is YAML
    log = _ErrorLog()
    context = Provisioner(str(folder), prepare_builders(project)).provision(prepare_project(project), logger=log)
    if context.get(CtxKey.BUILD_ERROR):
        raise RuntimeError(f"FLARE could not provision the kits: {'; '.join(log.errors)}")
    made = pathlib.Path(context[CtxKey.CURRENT_PROD_DIR])
    return {SERVER_FOLDER: made / server, ADMIN_FOLDER: made / ADMIN, **{party: made / party for party in parties}}


class _ErrorLog:
    """A logger for FLARE's provisioning that keeps the errors and drops everything else."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def debug(self, message: str) -> None: ...

    def info(self, message: str) -> None: ...

    def warning(self, message: str) -> None: ...

    def error(self, message: str) -> None:
        self.errors.append(message)


def _default(local: pathlib.Path, name: str) -> Any:
    return json.loads((local / f"{name}.default").read_text())


def _log_little(local: pathlib.Path) -> None:
    """FLARE logs every call at INFO, which costs more than the call; fedpact's own lines are few."""
    config = _default(local, "log_config.json")
    config["loggers"]["root"]["level"] = "WARNING"
    config["loggers"]["fedpact"] = {"level": "INFO"}
    write_json(local / "log_config.json", config)


def _forbid_code(local: pathlib.Path) -> None:
    """No job may bring code ("byoc"), whoever submits it."""
    config = _default(local, "authorization.json")
    rights = config["permissions"]
    rights["project_admin"] = {**dict.fromkeys(rights["lead"], "any"), "byoc": "none"}
    for role in ("org_admin", "lead"):
        rights[role]["byoc"] = "none"
    write_json(local / "authorization.json", config)


def _set_resources(kit: pathlib.Path, lost_after: float | None) -> None:
    """Allow only fedpact's classes; the server (`lost_after` is not None) stores its jobs in its own kit."""
    local = kit / "local"
    config = _default(local, "resources.json")
    config["class_allow_list"] = ALLOWED_CLASSES
    if lost_after is not None:
        storage = kit.resolve() / "storage"
        config["servers"][0]["heart_beat_timeout"] = lost_after
        config["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
        components = {component["id"]: component.setdefault("args", {}) for component in config["components"]}
        components["job_manager"]["uri_root"] = str(storage / "jobs")
        # One job at a time: two would write the same state. Check every second whether all sites are connected.
        components["job_scheduler"].update(
            max_jobs=1, min_schedule_interval=1.0, max_schedule_interval=5.0, max_schedule_count=10**6
        )
    else:
        config["allow_log_streaming"] = False  # a site's log stays at the site
        config["components"] = [part for part in config["components"] if part["id"] != "site_log_streamer"]
    write_json(local / "resources.json", config)
