"""Several hosts that run one program in lock-step."""

import socket

import jax


def join_hosts(hosts: str, place: int | None = None) -> int:
    """Connect this process to the other hosts, by `jax.distributed`; to be called before any other use of JAX.

    - `hosts`: names or addresses, the same on every host, the first with a port: "one.lan:9000,two.lan".
    - `place`: the index of this host, from 0 (default: by this machine's name).

    Returns the index of this host. Raises ValueError where `hosts` is not of this form or does not contain this machine.
    """
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    address, _, port = names[0].rpartition(":") if names else ("", "", "")
    if len(names) < 2 or not address or not port.isdigit():
        raise ValueError(f"--hosts {hosts}: at least two hosts, the first with a port, as in one.lan:9000,two.lan")
    if place is None:
        own_names = {socket.gethostname(), socket.getfqdn()}
        matches = [at for at, name in enumerate([address, *names[1:]]) if name in own_names]
        if len(matches) != 1:
            raise ValueError(f"--hosts {hosts}: this machine is {socket.gethostname()!r}; say which one with --host")
        place = matches[0]
    if place >= len(names):
        raise ValueError(f"--host {place}: there are {len(names)} hosts, counted from 0")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{address}:{port}", len(names), place)
    return place
