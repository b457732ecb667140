"""A pact on Flower (https://flower.ai, the extra `flower`).

| module | runs at | does |
|---|---|---|
| `server_app` | the server, one process per run | `serve`, over the `FlowerChannel` of `channel` |
| `site_process` | a site, one process as long as its node | passes messages from the node to the `Site` |
| `kit`, `keys`, `templates` | where the kit is written | writes what server and sites need |
| `local_run` | one machine | starts a kit's server and sites as processes and runs the pact on them |

A node is a party because the server's operator registered its public key under the party's name (`register.sh`): a node cannot
give itself another name. The site in turn rejects messages for another party. Only `site_process` imports flwr
when it is imported.
"""

from importlib.util import find_spec

from fedpact.extras import install


def require_flower() -> None:
    """Raise ModuleNotFoundError with the command to install Flower where it is missing."""
    if find_spec("flwr") is None:
        raise ModuleNotFoundError(f"Flower is not installed here: {install('flower')}")
