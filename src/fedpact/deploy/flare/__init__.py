"""A pact on NVIDIA FLARE (https://nvflare.readthedocs.io, the extra `flare`).

| module | runs at | does |
|---|---|---|
| `components` | server and sites, inside FLARE's processes | the classes that a job names |
| `job` | where the kit is written | writes FLARE jobs |
| `kit`, `readme` | where the kit is written | provisions server, sites and admin |
| `local_run` | one machine | starts a kit's server and sites as processes and runs jobs on them |

Only `components` imports nvflare when it is imported.
"""

from fedpact.extras import install

NOT_INSTALLED = f"this needs NVIDIA FLARE, which is not installed: {install('flare')}"
