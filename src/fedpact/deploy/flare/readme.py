"""The README of a folder that `fedpact deploy flare` writes."""

import pathlib
from collections.abc import Sequence

from fedpact.__about__ import VERSION
from fedpact.deploy.kit_words import SECURE_SUMS


def readme_text(
    pact: pathlib.Path,
    parties: Sequence[str],
    address: str,
    storage: pathlib.Path,
    wait: float,
    lost_after: float,
    retry: float,
) -> str:
    """The README in Markdown.

    - `pact`: the pact file.
    - `parties`: names of the parties.
    - `address`: the server's `host:port`.
    - `storage`: the folder of the server's jobs.
    - `wait`: seconds that a party has for one reply.
    - `lost_after`: seconds without a heartbeat after which a site is lost.
    - `retry`: seconds that FLARE keeps a timer per reply.
    """
    starts = "\n".join(f"   `{party}/startup/start.sh`" for party in parties)
    return f"""# {pact.name} on NVIDIA FLARE: {", ".join(parties)}

## Four commands
1. Everyone, in a Python environment that is active whenever they start something (and whatever {pact.name} itself imports):
   `pip install './fedpact-{VERSION}-py3-none-any.whl[flare]'`
   (`make package` writes that wheel to `dist` of a checkout of fedpact)
2. At the server, which the others must reach as `{address}`, with the folder `server`:
   `server/startup/start.sh`
3. At each party, with the folder of its name and nobody else's:
{starts}
4. The admin, who starts runs, with the folder `admin`:
   `nvflare job submit -j admin/jobs/run --startup-kit admin`

Put the folders where no path has a space: FLARE starts its jobs with a command that it splits there. The last command prints
the run's id. `nvflare job wait ID --startup-kit admin` waits for its end; `nvflare job download ID
--startup-kit admin` fetches the results: `workspace/fedpact.json` says how the run ended, `workspace/fedpact/{pact.stem}`
holds its result, and the model for `fp.load` and `fedpact predict` in `model`. Server and sites keep running, for further
runs, and restart by themselves when their process dies;
`server/startup/stop_fl.sh` and the like stop them.

`fedpact status server`, and at a site `fedpact status {parties[0]}`, say how a run is going, on the machine that has the folder.
`nvflare job submit -j admin/jobs/verify --startup-kit admin` measures the certificate of the last run again. `fedpact.service`
and `Containerfile` in each kit are for machines that run it for long: docs/operations.md of fedpact, which is also on upgrades
and on replacing keys.

## To resume after a fault
Restart the party or the server that was lost with its command above. Then the admin:
`nvflare job submit -j admin/jobs/resume --startup-kit admin`
Every party and the server resume from what they saved on their own disks.

## Where everything is
Each kit belongs to one owner. Nobody else needs anything in it, and `startup` holds its private key.

| in a kit | |
|---|---|
| `local/fedpact.json` | where the pact is on this machine: `pact`, `folder`, `policy`; relative paths start at the kit |
| `local/{pact.name}` | this owner's copy of the pact. Read it: it is the program that runs on your rows |
| `local/policy.toml` | a party's policy, if it is there |
| `fedpact/{pact.stem}` | the state of a run, kept for resuming: a party's own, or the server's with the result |
| `local/resources.json` | which classes a job may name: fedpact's two and FLARE's two that call them, nothing else |
| `local/authorization.json` | who may do what: nobody may send code, only a site's own people may stop it or look into it |
| `local/comm_config.json`, `local/log_config.json` | settings that make FLARE fast: see below |

The server stores its jobs in `{storage}`.
FLARE wants absolute paths: when the folder is moved, change both in `server/local/resources.json`.
`provision` holds the certificate authority with its key. Whoever has it can make kits; keep it offline.

{SECURE_SUMS.format(policy="local/policy.toml")}
## Settings that matter
These kits have them already; keep them when you change others.
- `streaming_retry_timeout` {retry:g} in `local/comm_config.json` (or `NVFLARE_STREAMING_RETRY_TIMEOUT={retry:g}` for every
  process): FLARE otherwise keeps a timer per reply for a minute.
- The level WARNING in `local/log_config.json`, but INFO of fedpact: FLARE otherwise logs every call.
- `np_download_chunk_size` 0 in the jobs: arrays are sent inside the message.
- `wait` {wait:g} in the jobs: the seconds that a party has for one reply.
- `heart_beat_timeout` {lost_after:g} in `server/local/resources.json`: seconds without a heartbeat after which a site is lost.
"""
