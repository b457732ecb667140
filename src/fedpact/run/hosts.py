"""Several hosts that work on one run in lock-step."""

import socket

import jax


def join_hosts(hosts: str, place: int | None = None) -> int:
    """Join the others; which of them this is, from 0. Before anything else of JAX is used.

    hosts: names or addresses in one order for all, the first with a port: "one.lan:9000,two.lan". place: which of them this
    is, from 0 (default: found by this machine's name).
    """
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    address, _, port = names[0].rpartition(":") if names else ("", "", "")
    if len(names) < 2 or not address or not port.isdigit():
        raise ValueError(f"--hosts {hosts}: at least two hosts, the first with a port, as in one.lan:9000,two.lan")
    if place is None:
        mine = {socket.gethostname(), socket.getfqdn()}
        found = [at for at, name in enumerate([address, *names[1:]]) if name in mine]
        if len(found) != 1:
            raise ValueError(f"--hosts {hosts}: this machine is {socket.gethostname()!r}; say which one with --host")
        place = found[0]
    if place >= len(names):
        raise ValueError(f"--host {place}: there are {len(names)} hosts, counted from 0")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{address}:{port}", len(names), place)
    return place
