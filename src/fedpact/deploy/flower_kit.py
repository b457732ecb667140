"""`fedpact deploy flower`: a folder for the server and one for each site, with keys, certificates and the commands to start."""

import os
import pathlib
import re
import shutil
from collections.abc import Sequence

from fedpact.__about__ import VERSION
from fedpact.deploy.flower import WAIT, need_flower
from fedpact.deploy.flower_keys import DAYS, Authority, node_key

PORT = 9092  # of the server, default
POLICY = "policy.toml"  # a site's own policy file: used if it is there
REGISTERED = "flower/registered"  # there as soon as register.sh has been through

QUIET = """\
export FLWR_TELEMETRY_ENABLED=0     # Flower reports nothing to its makers
export FLWR_DISABLE_UPDATE_CHECK=1  # nor does it ask whether there is a newer Flower
export FLWR_HOME="$PWD/flower"      # and it writes here, not in your home folder
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1
"""

HEAD = """\
#!/bin/sh
# {what}
set -eu
cd "$(dirname "$0")"
{quiet}"""

SERVER_START = """\
export FEDPACT_FLOWER_SERVER="$PWD"
mkdir -p flower state
cat > flower/config.toml <<END
[superlink.fedpact]
address = "{server}:{port}"
root-certificates = "$PWD/ca.crt"
END
exec flower-superlink --host {bind} --port {port} --database flower/superlink.db \\
    --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \\
    --enable-supernode-auth --disable-runtime-dependency-installation
"""

SERVER_RUN = """\
resume=false
[ "${{1:-}}" = --resume ] && resume=true
rm -f state/flower.json
flwr run app fedpact --stream --run-config "resume=$resume wait=${{FEDPACT_WAIT:-{wait}}}" || true
if [ ! -f state/flower.json ]; then
    echo "fedpact: the run was cut off, or only its log was left: see flwr list; go on with run.sh --resume" >&2
    exit 1
fi
exec python -c "
import json, sys
end = json.load(open('state/flower.json'))
print('fedpact:', end['words'])
sys.exit(not end['ok'])"
"""

SITE_START = """\
mkdir -p state
port="${{FEDPACT_NODE_PORT:-9094}}"
set -- --party {party} --pact pact.py --folder state --node $$ --address 127.0.0.1:$port
[ -f {policy} ] && set -- "$@" --policy {policy}
(python -m fedpact.deploy.flower_party "$@" || true; kill $$) &  # whichever of the two ends, ends the other
exec flower-supernode --superlink {server}:{port} --root-certificates ca.crt --auth-supernode-private-key node.key \\
    --isolation process --host 127.0.0.1 --port "$port"
"""

PROJECT = """\
[project]
name = "fedpact"
version = "{version}"
description = "Carries the messages of a fedpact run"
license = "Apache-2.0"
dependencies = ["fedpact[flower]=={version}"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedpact"

[tool.flwr.app.components]
serverapp = "fedpact_flower.server:app"
clientapp = "fedpact_flower.client:app"

[tool.flwr.app.config]
resume = false  # go on with the last run of the server's state folder
wait = {wait}    # seconds for the parties' answers to one message
"""

SERVER_APP = '''\
"""The ServerApp: fedpact, installed at the server."""

from fedpact.deploy.flower import server_app

app = server_app()
'''

CLIENT_APP = '''\
"""The ClientApp that Flower asks for. No site runs it: its own process answers (fedpact.deploy.flower_party)."""

from flwr.clientapp import ClientApp

app = ClientApp()
'''

README = """\
# A fedpact run on Flower: {names}

Made by `fedpact deploy flower` (fedpact {version}). Give each folder to whom it is named after, over a way you trust: it holds
a private key. Everybody needs Python with `pip install "fedpact[flower]=={version}"`, active where these commands are given.

| | where | command | |
|---|---|---|---|
| 1 | server | `server/start.sh` | Flower's superlink, on {server}:{port}; keep it running |
| 2 | server | `server/register.sh` | once: makes the parties' keys known, each under its party's name |
| 3 | each site | `{first}/start.sh`, ... | the site: Flower's supernode and the party's own process; keep it running |
| 4 | server | `server/run.sh` | the run; its result is in `server/state` |

**To go on** after anything was stopped or lost: start what is not running (1, 3), then `server/run.sh --resume`. A site that was
killed outright (not ended by Ctrl-C) can be started again after a minute: until then the server takes its node for online.
Ctrl-C in `run.sh` leaves the log, not the run; a run ends with `server/start.sh`.

## Where things are
- `pact.py` in every folder: the same pact. Modules that it imports are put beside it. Its `load(party)` finds the party's rows.
- `<party>/state`: the party's state, which never leaves its site. `server/state`: the server's state and the result. Keep both
  to resume.
- `<party>/{policy}`: the party's own policy, if it has one: put it there before `start.sh`.
- The server waits {wait:g} seconds for the parties' answers to a message; `FEDPACT_WAIT=3600 server/run.sh` waits an hour.
- A site calls the server; it listens only to its own machine, on port 9094 (or `FEDPACT_NODE_PORT`).

## What is protected, and how
- TLS between sites and server: `ca.crt` is the authority made for this kit, valid {days} days; its key was thrown away.
- A node's key (`<party>/node.key`) is its identity. The server takes no node whose public key was not registered, and knows it
  as the party under whose name it was registered. A site that wants a key nobody else has seen makes its own and sends only
  `node.key.pub`, for `server/keys/<party>.pub`: `ssh-keygen -t ecdsa -b 384 -N "" -f node.key`.
- Telemetry and update checks of Flower are switched off in every script here, and so is its installing of packages at run time.
- Flower sends the app in `server/app` to the sites. **They do not run it**: a site's node is started with `--isolation process`,
  and the party's own process takes messages from it, never code. A site started in another way would run what it is sent.
- **Whoever reaches all of the server's port can submit runs, which are code that the server's machine executes, and register
  nodes**, each site too: Flower asks for a key only where nodes call. Let the sites through to paths under `/v1/fleet/` alone,
  by a proxy, if they do not trust each other.
- A node's own port (9094) is open to every user of the site's machine: use a machine or a container of its own.
"""


def write_kit(
    pact: str | os.PathLike[str],
    parties: Sequence[str],
    out: str | os.PathLike[str],
    *,
    server: str = "localhost",
    port: int = PORT,
    wait: float = WAIT,
) -> pathlib.Path:
    """Write what a server and its sites need to run a pact on Flower, and return the folder.

    `out/server` is for the server, `out/<party>` for each site, `out/README.md` has the four commands. Folders hold private
    keys: only their owner can read them, and an `out` that is there already and not empty is refused.

    Args:
        pact: the pact file; copied into every folder.
        parties: the parties' names, those of the pact: letters, digits, `-` and `_`.
        out: where to write; made if it is not there.
        server: the name or address under which sites reach the server; it is in the server's certificate.
        port: the server's port.
        wait: seconds that the server waits for all parties' answers to one message.
    """
    need_flower()
    pact, out = pathlib.Path(pact), pathlib.Path(out)
    _check(pact, parties, out, server, port, wait)
    said = {"version": VERSION, "server": server, "port": port, "policy": POLICY, "days": DAYS, "wait": float(wait)}
    authority = Authority()

    home = _folder(out / "server")
    (home / "ca.crt").write_bytes(authority.certificate)
    key, certificate = authority.server(server)
    _secret(home / "server.key", key)
    (home / "server.crt").write_bytes(certificate)
    shutil.copy(pact, home / "pact.py")
    here = _is_here(server)
    _script(
        home / "start.sh",
        "The server: Flower's superlink.",
        SERVER_START,
        bind="127.0.0.1" if here else "0.0.0.0",
        **said,
    )
    register = (
        "".join(f"flwr supernode register keys/{name}.pub fedpact --name {name}\n" for name in parties)
        + f"touch {REGISTERED}\n"
    )
    _script(home / "register.sh", "Makes the parties' keys known to the server; once, while start.sh runs.", register)
    _script(
        home / "run.sh",
        "One run, or with --resume the rest of the last one; the result is in state.",
        SERVER_RUN,
        **said,
    )
    app = _folder(home / "app" / "fedpact_flower")
    (app.parent / "pyproject.toml").write_text(PROJECT.format(**said))
    (app / "__init__.py").write_text("")
    (app / "server.py").write_text(SERVER_APP)
    (app / "client.py").write_text(CLIENT_APP)

    keys = _folder(home / "keys")
    for name in parties:
        site = _folder(out / name)
        private, public = node_key()
        _secret(site / "node.key", private)
        (keys / f"{name}.pub").write_bytes(public)
        (site / "ca.crt").write_bytes(authority.certificate)
        shutil.copy(pact, site / "pact.py")
        _script(
            site / "start.sh",
            f"The site of {name}: its own process, and Flower's supernode.",
            SITE_START,
            party=name,
            **said,
        )
    names = ", ".join(parties)
    (out / "README.md").write_text(README.format(names=names, first=parties[0], **said))
    return out


def _check(pact: pathlib.Path, parties: Sequence[str], out: pathlib.Path, server: str, port: int, wait: float) -> None:
    if not pact.is_file():
        raise FileNotFoundError(f"there is no pact {pact}")
    for name in parties:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", name) or name == "server":
            raise ValueError(f"party {name!r}: on Flower a name has letters, digits, - and _, and is not 'server'")
    if not parties or len(set(parties)) < len(parties):
        raise ValueError(f"parties = {list(parties)!r} should be the parties' names, each once")
    if not re.fullmatch(r"[A-Za-z0-9.-]+", server):
        raise ValueError(f"server = {server!r} should be the name or address (IPv4) under which sites reach the server")
    if not 0 < port < 65536:
        raise ValueError(f"port = {port}: a port is between 1 and 65535")
    if not wait > 0:
        raise ValueError(f"wait = {wait}: wait must be > 0; it is the seconds for the parties' answers to a message")
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty: its keys and state are not overwritten; choose another folder")


def _folder(path: pathlib.Path) -> pathlib.Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def _secret(path: pathlib.Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _script(path: pathlib.Path, what: str, body: str, **values: object) -> None:
    path.write_text(HEAD.format(what=what, quiet=QUIET) + body.format(**values))
    path.chmod(0o700)


def _is_here(server: str) -> bool:
    return server in ("localhost", "127.0.0.1")
