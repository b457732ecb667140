"""What operators need to keep an owner's folder of a kit running: a systemd unit and a container file, in each of them.

They only start what the kit starts by hand. What is in them, and how to use them: docs/operations.md.
"""

import pathlib
import platform

from fedpact.__about__ import VERSION

UNIT, CONTAINER = "fedpact.service", "Containerfile"
HOME = "/opt/fedpact"  # where the unit looks for the owner's folder, and for a virtual environment `venv`

UNIT_TEXT = """\
# systemd unit: keeps {owner} running, and starts it with the machine. Put this folder in {home}/{owner} and a virtual environment
# with fedpact in {home}/venv, both owned by a user `fedpact` of its own; then
#   sudo cp {home}/{owner}/{unit} /etc/systemd/system/fedpact-{owner}.service
#   sudo systemctl enable --now fedpact-{owner}        journalctl -u fedpact-{owner} --follow
[Unit]
Description=fedpact: {owner}
Wants=network-online.target
After=network-online.target

[Service]
User=fedpact
WorkingDirectory={home}/{owner}
Environment=PATH={home}/venv/bin:/usr/local/bin:/usr/bin:/bin
# Environment=FEDPACT_LOG=json
ExecStart=/bin/bash -c "exec {start}"
Restart=on-failure
RestartSec=10
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths={home}/{owner}
Environment=FEDPACT_CACHE={home}/{owner}/cache

[Install]
WantedBy=multi-user.target
"""

CONTAINER_TEXT = """\
# Container of {owner}. The image holds programs only; keys, state and the pact are this folder, which is mounted:
#   cp fedpact-{version}-py3-none-any.whl .                       (from `make package`)
#   podman build -t fedpact-{owner} .
#   podman run -d --name {owner} --userns=keep-id -v .:/kit -v /data:/data:ro{ports} fedpact-{owner}
# `load` of the pact finds rows under /data. Docker does it with --user "$(id -u):$(id -g)" in place of --userns=keep-id.
FROM docker.io/library/python:{python}-slim
RUN apt-get update && apt-get install -y --no-install-recommends procps && rm -rf /var/lib/apt/lists/*
COPY fedpact-{version}-py3-none-any.whl /tmp/
RUN pip install --no-cache-dir '/tmp/fedpact-{version}-py3-none-any.whl[{engine}]'
ENV HOME=/kit FEDPACT_CACHE=/kit/cache PYTHONUNBUFFERED=1
WORKDIR /kit
HEALTHCHECK --interval=60s --timeout=30s --start-period=120s CMD ["fedpact", "status", "/kit", "--health"]
CMD ["/bin/bash", "-c", "exec {start}"]
"""


def write_service_files(folder: pathlib.Path, owner: str, engine: str, start: str, port: int | None = None) -> None:
    """Write the unit and the container file of an owner.

    - `folder`: the owner's folder of the kit.
    - `owner`: "server", or a party.
    - `engine`: its name, which is that of fedpact's extra too.
    - `start`: the command in the folder that starts the owner and stays in the foreground.
    - `port`: that the owner listens on (default: None, it does not).
    """
    python = ".".join(platform.python_version_tuple()[:2])  # the same minor version everywhere
    ports = "" if port is None else f" -p {port}:{port}"
    values = {"owner": owner, "engine": engine, "start": start, "version": VERSION, "python": python, "ports": ports}
    (folder / UNIT).write_text(UNIT_TEXT.format(home=HOME, unit=UNIT, **values))
    (folder / CONTAINER).write_text(CONTAINER_TEXT.format(**values))
