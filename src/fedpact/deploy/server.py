"""The server's end of a run: greet the parties, run the method over whatever carries messages, certify, save."""

import dataclasses
import os
import secrets
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedpact import __about__
from fedpact.certificate import add_up
from fedpact.deploy.tracing import VERSIONS, traced
from fedpact.engines.local import LocalNetwork
from fedpact.engines.remote import NOTHING, Channel, Link, PartyRefused, RemoteNetwork
from fedpact.federation.binding import Bound
from fedpact.federation.blocks import BoundColumns
from fedpact.federation.columns import INPUTS
from fedpact.federation.described import Description, bind_columns_described, bind_described, described
from fedpact.federation.rows import checked_seed, title
from fedpact.federation.table import Table
from fedpact.precision import in_double, kept_programs
from fedpact.problem.split import TOP
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest
from fedpact.run.loop import Found, Running, checked_limits
from fedpact.run.pact import Pact
from fedpact.run.progress import ProgressLine
from fedpact.run.result import Result


@in_double
def serve(
    pact: str | os.PathLike[str],
    channel: Channel,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: bool | None = None,
) -> Result:
    """Run a pact over parties that a channel reaches.

    folder: the server's own, for its state and the result. resume: go on with the run that it holds (or begin, if none).
    progress: a live line on stderr (default: on a terminal).

    Over columns, labels and groups are the pact's `server`, or what `load` gives for the first active party on this machine:
    the server is the label holder's. A party's block, its own model and its own multipliers are written to the party's folder.
    Raises PartyLost where a party stays away or refuses; what was saved before can be resumed.
    """
    stated, home = Pact(pact), Folder(folder)
    home.check_room()
    before = home.owner() if resume and home.holds_a_run else None
    if before is not None and "kept_by" not in before:
        raise ValueError(
            f"{home.path} holds a run in one process; choose another folder for one with parties elsewhere"
        )
    run = secrets.token_hex(8) if before is None else str(before["run"])
    link = Link(channel, stated.parties, _roles(stated), run, secrets.token_hex(8))
    link.number = NOTHING + 1 if before is None else int(before["version_of_states"])
    try:
        with kept_programs():
            return _served(stated, link, home, resume, before, progress)
    except Exception:
        if link.failure is not None:  # what a compiled program raises hides what was raised in it
            raise link.failure from None
        raise


def _served(
    pact: Pact, link: Link, home: Folder, resume: bool, before: dict[str, Any] | None, progress: bool | None
) -> Result:
    everybody = [description for _, description in _greeted(pact, link, pact.parties)]
    bound, server = _bound(pact, everybody)
    algorithm = pact.method(bound.setting)
    net = RemoteNetwork(LocalNetwork.of(bound), link)
    meeting = {
        "kind": "meet",
        "descriptions": [each.as_words() for each in everybody],
        "server": None if server is None else server.as_words(),
    }
    plan = traced(algorithm, net, bound).digest

    def meet(names: Sequence[str], saved: dict[str, int] | None, version: int) -> None:
        """Let parties trace the method, and go on from versions that they saved under that name."""
        for name, answer in link.tell({**meeting, "resume": saved, "as": version}, names).items():
            if answer.get("plan") != plan:
                raise PartyRefused(
                    name, "it traces other messages from the same pact: it needs the same versions of fedpact and JAX"
                )

    def welcome(name: str, version: int) -> None:
        """A party that was started anew goes on from what it saved."""
        ((_, told),) = _greeted(pact, link, [name])
        if told != everybody[pact.parties.index(name)]:
            raise PartyRefused(name, "it comes back with another table")
        meet([name], run.kept_by, version)

    meet(pact.parties, None if before is None else before["kept_by"], link.number)
    options = pact.options
    tolerance, most = checked_limits(options.get("tolerance", 1e-4), options.get("max_rounds", 10_000))
    seed = checked_seed(options.get("seed", 0))
    run = _Deployed(bound, algorithm, tolerance, seed, "stepwise", net)
    owner = {
        "version": __about__.VERSION,
        "problem": digest(pact.problem.public),
        "algorithm": digest(algorithm),
        "data": digest([each.as_words() for each in everybody]),
        "start": digest(np.asarray(bound.start)),
        "seed": seed,
        "disclose": pact.discloses,
        "run": link.run,
    }
    run.open(home, owner, resume)
    if before is not None:
        run.kept_by = before["kept_by"]
    if run.may_miss:
        if before is None:
            run.save_state(some=False)  # so that a party that is lost right away has something to come back with
        link.welcome = welcome
    with ProgressLine(progress) as line:
        status = run.go(most, line, None)
    result = run.result(pact.problem, status)
    link.tell({"kind": "end", "versions": link.versions(int(run.kept.version))})
    return result


def _greeted(pact: Pact, link: Link, names: Sequence[str]) -> list[tuple[str, Description]]:
    """Parties that have agreed to the pact, with their descriptions."""
    told = link.tell({"kind": "hello", "digest": pact.digest, "versions": VERSIONS}, names)
    found = []
    for name in names:
        try:
            found.append((name, Description.read(told[name].get("description"))))
        except ValueError as error:
            raise PartyRefused(name, str(error)) from None
    return found


def _roles(pact: Pact) -> tuple[bool, ...]:
    return tuple(name in pact.active for name in pact.parties)


def _bound(pact: Pact, everybody: list[Description]) -> tuple[Bound | BoundColumns, Description | None]:
    """The problem as the server knows it, and what it tells about its own table."""
    options = {"start": pact.options.get("start"), "seed": checked_seed(pact.options.get("seed", 0))}
    if pact.columns:
        table = pact.server or pact.table(pact.active[0])
        labels = Table({name: table[name] for name in table.columns if name not in (INPUTS, pact.id)})
        bound: Any = bind_columns_described(pact.problem, pact.parties, pact.active, everybody, {}, labels, **options)
        return bound, None
    server = pact.server
    bound = bind_described(pact.problem, pact.parties, everybody, server, disclose=pact.discloses, **options)
    return bound, None if server is None else described(server, tuple(bound.server.rows))


@dataclasses.dataclass
class _Deployed(Running):
    """A run whose parties' states are elsewhere."""

    net: RemoteNetwork
    kept_by: dict[str, int] = dataclasses.field(default_factory=dict)  # the version that each party saved last

    @property
    def may_miss(self) -> bool:
        """Whether a party may stay away for some rounds."""
        return any(exchange.partial for exchange in self.net.link.plan.exchanges.values())

    def advance(self, most: int) -> None:
        self.net.link.oldest = int(self.parties.version)
        super().advance(most)

    def save_state(self, some: bool = True) -> None:
        """First the parties, then the server: a version that the server knows is on every party's disk.

        some: where a party may miss rounds, it may miss this too.
        """
        link = self.net.link
        if link.failure is not None:
            return  # somebody is gone, and what was saved before is whole
        version = int(self.parties.version)
        words = {"kind": "keep", "versions": link.versions(version), "as": version, "kept": self.kept_by}
        try:
            there = link.tell(words, some=some and self.may_miss)
        except BaseException as error:
            link.failure = error
            raise
        self.kept_by |= dict.fromkeys(there, version)
        self.owner |= {"version_of_states": version, "kept_by": dict(self.kept_by)}
        super().save_state()

    def culprit(self) -> str | None:
        told = sorted(self.net.link.not_finite)
        if not told:
            return None
        return f"in round {self.rounds}, or before, {', '.join(map(title, told))} said that its numbers are not finite"

    def found(self) -> Found:
        """What the server may know of the answer: blocks and personal models are with their parties."""
        w, bound = np.asarray(self.answer.w), self.bound
        if isinstance(bound, BoundColumns):
            return Found(w, {TOP: bound.shape.unravel(w)} if bound.shape.size else {})
        if bound.setting.personal:
            w = np.asarray(_mean(self.net, self.kept))
        return Found(w, jax.tree.map(np.asarray, bound.shape.unravel(w)))


@jax.jit
def _mean(net: RemoteNetwork, models: Any) -> jax.Array:
    reply, _ = net.exchange(add_up, models, None)
    return reply.sum / net.parties
