"""Templates of the files in a Flower kit: scripts, Flower's app and the README."""

ENVIRONMENT = """\
export FLWR_TELEMETRY_ENABLED=0     # Flower reports nothing to its makers
export FLWR_DISABLE_UPDATE_CHECK=1  # nor does it ask whether there is a newer Flower
export FLWR_HOME="$PWD/flower"      # and it writes here, not in your home folder
"""

HEADER = """\
#!/bin/sh
# {purpose}
set -eu
cd "$(dirname "$0")"
{environment}"""

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

# One process for all keys: starting `flwr` takes longer than registering one.
SERVER_REGISTER = """\
[ $# -gt 0 ] || set -- {parties}  # or those that are named
python - "$@" <<'END'
import sys
from flwr.cli.app import app
for party in sys.argv[1:]:
    words = ["supernode", "register", f"keys/{{party}}.pub", "fedpact", "--name", party]
    if app(words, standalone_mode=False):
        sys.exit(f"{{party}}: its key was not registered")
END
touch {registered}
"""

SERVER_RUN = """\
resume=false verify=false
[ "${{1:-}}" = --resume ] && resume=true
[ "${{1:-}}" = --verify ] && verify=true
rm -f state/flower.json
flwr run app fedpact --stream --run-config "resume=$resume verify=$verify wait=${{FEDPACT_WAIT:-{wait}}}" || true
if [ ! -f state/flower.json ]; then
    echo "fedpact: the run was interrupted, or goes on and only its log was left: see flwr list; then run.sh --resume" >&2
    exit 1
fi
exec python -c "
import json, sys
outcome = json.load(open('state/flower.json'))
print('fedpact:', outcome['message'])
sys.exit(not outcome['finished'])"
"""

SITE_START = """\
mkdir -p state
port="${{FEDPACT_NODE_PORT:-9094}}"
set -- --party {party} --pact pact.py --folder state --node $$ --address 127.0.0.1:$port
[ -f {policy} ] && set -- "$@" --policy {policy}
(python -m fedpact.deploy.flower.site_process "$@" || true; kill $$) &  # when one of the two ends, so does the other
exec python -m fedpact.deploy.flower.node --superlink {server}:{port} --root-certificates ca.crt \\
    --auth-supernode-private-key node.key --isolation process --host 127.0.0.1 --port "$port"
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
resume = false  # resume the last run of the server's state folder
verify = false  # measure the certificate of that run again
wait = {wait}    # seconds for the parties' replies to one message
"""

SERVER_APP = '''\
"""The ServerApp: fedpact, installed at the server."""

from fedpact.deploy.flower.server_app import server_app

app = server_app()
'''

CLIENT_APP = '''\
"""The ClientApp that Flower requires. No site runs it: its own process replies (fedpact.deploy.flower.site_process)."""

from flwr.clientapp import ClientApp

app = ClientApp()
'''

README = """\
# A fedpact run on Flower: {names}

Made by `fedpact deploy flower` (fedpact {version}). Give each folder to its owner over a secure channel: it holds a private
key. Everybody needs Python with `pip install './fedpact-{version}-py3-none-any.whl[flower]'`, active where these commands are
run; `make package` writes that wheel to `dist` of a checkout of fedpact.

| | where | command | |
|---|---|---|---|
| 1 | server | `server/start.sh` | Flower's superlink, on {server}:{port}; keep it running |
| 2 | server | `server/register.sh` | once: registers the parties' keys, each under its party's name |
| 3 | each site | `{first}/start.sh`, ... | the site: Flower's supernode and the party's own process; keep it running |
| 4 | server | `server/run.sh` | the run; its result is in `server/state`, the model for `fp.load` in `server/state/model` |

`fedpact status server`, and at a site `fedpact status {first}`, say how a run is going; `server/run.sh --verify` measures the
certificate of the last one again. `fedpact.service` and `Containerfile` in each folder are for machines that run it for long:
docs/operations.md of fedpact, which is also on upgrades and on replacing keys.

**To resume** after anything was stopped or lost: start what is not running (1, 3), then `server/run.sh --resume`. A site that
was killed (not stopped by Ctrl-C) is refused for a minute, as the server considers its node online; it tries until it is taken.
Ctrl-C in `run.sh` leaves the log, not the run; a run ends with `server/start.sh`.

## Where things are
- `pact.py` in every folder: the same pact. Modules that it imports are put beside it. Its `load(party)` finds the party's rows.
- `<party>/state`: the party's state, which never leaves its site. `server/state`: the server's state and the result. Keep both
  to resume.
- `<party>/{policy}`: the party's own policy, if it has one: put it there before `start.sh`.
- The server waits {wait:g} seconds for the parties' replies to a message; `FEDPACT_WAIT=3600 server/run.sh` waits an hour.
- A site connects to the server; it listens only on its own machine, on port 9094 (or `FEDPACT_NODE_PORT`).

{secure_sums}
## What is protected, and how
- TLS between sites and server: `ca.crt` is the certificate authority made for this kit, valid {days} days; its key was not kept.
- A node's key (`<party>/node.key`) is its identity. The server accepts no node whose public key was not registered, and knows
  it as the party under whose name it was registered. A site that wants a key nobody else has seen makes its own and sends only
  `node.key.pub`, for `server/keys/<party>.pub`: `ssh-keygen -t ecdsa -b 384 -N "" -f node.key`.
- Telemetry and update checks of Flower are switched off in every script here, and so is its installation of packages at
  run time.
- Flower sends the app in `server/app` to the sites. **They do not run it**: a site's node is started with `--isolation process`,
  and the party's own process takes messages from it, never code. A site started in another way would run the app.
- **Whoever reaches all of the server's port can submit runs, which are code that the server's machine executes, and register
  nodes**, each site too: Flower asks for a key only where nodes connect. If the sites do not trust each other, restrict them to
  paths under `/v1/fleet/` with a proxy.
- A node's own port (9094) is open to every user of the site's machine: use a machine or a container of its own.
"""
