"""The server's end of a run: greet the parties, run the method over whatever carries messages, certify, save."""

import dataclasses
import os
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpact import __about__
from fedpact.deploy.evaluation import evaluate_at_parties, labels_at_server
from fedpact.deploy.party import VERSIONS
from fedpact.deploy.preparation import fit_over_parties
from fedpact.deploy.promise import Told, tested
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.remote import NOTHING, Channel, Link, PartyRefused, RemoteNetwork
from fedpact.federation.binding import drawn_starts
from fedpact.federation.description import Description
from fedpact.federation.rows import Parties, checked_seed, title
from fedpact.precision import in_double, kept_programs
from fedpact.run.checkpoint import Folder, write
from fedpact.run.fingerprint import digest
from fedpact.run.loop import Run, checked_limits
from fedpact.run.pact import EVALUATION, Pact
from fedpact.run.progress import ProgressLine
from fedpact.run.promise import Promise
from fedpact.run.result import Result


@in_double
def serve(
    pact: str | os.PathLike[str],
    channel: Channel,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: bool | None = None,
) -> Result | Promise:
    """Run a pact over parties that a channel reaches; where it has a promise, test it at the end and return that.

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
    active = tuple(name in stated.active for name in stated.parties)
    link = Link(channel, stated.parties, active, run, secrets.token_hex(8))
    link.number = NOTHING + 1 if before is None else int(before["version_of_states"])
    with kept_programs():
        return _served(stated, link, home, resume, before, progress)


def _served(
    pact: Pact, link: Link, home: Folder, resume: bool, before: dict[str, Any] | None, progress: bool | None
) -> Result | Promise:
    greeting: dict[str, Any] = {"digest": pact.digest, "versions": VERSIONS}
    agreed = fit_over_parties(pact, link, home, greeting, resumed=before is not None)
    if agreed is not None:
        greeting["recipe"] = agreed.to_json()
    greeted = _greeted(link, pact.parties, greeting)
    descriptions = [each.description for each in greeted]
    agreement = dataclasses.replace(pact.agreement, descriptions=tuple(descriptions))
    told = None
    if pact.promise is not None:
        told = Told(pact.promise, {each.name: each.held_out for each in greeted})
        agreement = dataclasses.replace(agreement, problem=told.problem())
    bound, server = pact.setting.bind_at_server(agreement, pact.server_table(agreed), pact.table)
    labels = labels_at_server(pact)
    method = pact.method_for(bound.setting)
    if pact.starts > 1:
        first = Parties({pact.parties[0]: descriptions[0].zeros(1)})
        bound = bound.with_starts(drawn_starts(pact.problem, first, agreement.seed, pact.starts - 1))
    link.plan = ExchangePlan.of(method, bound)
    meeting = {
        "kind": "meet",
        "descriptions": [each.as_words() for each in descriptions],
        "server": None if server is None else server.as_words(),
        **({} if told is None else {"held_out": told.words}),
    }
    plan = link.plan.digest

    def meet(names: Sequence[str], saved: dict[str, int] | None, version: int) -> None:
        """Let parties trace the method, and go on from versions that they saved under that name."""
        for name, answer in link.tell({**meeting, "resume": saved, "as": version}, names).items():
            if answer.get("plan") != plan:
                raise PartyRefused(
                    name, "it traces other messages from the same pact: it needs the same versions of fedpact and JAX"
                )

    def welcome(name: str, version: int) -> None:
        """A party whose process was restarted continues from what it saved."""
        (again,) = _greeted(link, [name], greeting)
        if again != greeted[pact.parties.index(name)]:
            raise PartyRefused(name, "it comes back with another table")
        meet([name], run.kept_by, version)

    meet(pact.parties, None if before is None else before["kept_by"], link.number)
    options = pact.options
    tolerance, most = checked_limits(options.get("tolerance", 1e-4), options.get("max_rounds", 10_000))
    seed = checked_seed(options.get("seed", 0))
    words = pact.title_for(bound.setting)
    run = _DeployedRun(bound, method, words, tolerance, seed, "stepwise", RemoteNetwork(link), link)
    owner = {
        "version": __about__.VERSION,
        "problem": digest(pact.problem.public),
        "algorithm": digest(method),
        "data": digest([each.as_words() for each in descriptions]),
        "start": digest(np.asarray(bound.start)),
        "seed": seed,
        "disclose": bound.discloses,
        "run": link.run,
        **({} if pact.recipe is None else {"recipe": pact.recipe_digest}),
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
    result = run.result(agreement.problem, status)
    promise = None if told is None else tested(link, told, result)
    link.tell({"kind": "end", "versions": link.versions(int(run.kept.version))})
    if pact.evaluate is not None:
        evaluation = evaluate_at_parties(pact, link, run, result, labels)
        evaluation.save(home.path / EVALUATION)
        result = dataclasses.replace(result, evaluation=evaluation)
    if promise is None:
        return result
    write(home.path / "promise.txt", f"{promise}\n".encode())
    return dataclasses.replace(promise, result=result)


class Greeting(NamedTuple):
    """A party that has agreed to the pact, with what it tells of its rows, and of those that it holds out."""

    name: str
    description: Description
    held_out: Any


def _greeted(link: Link, names: Sequence[str], greeting: dict[str, Any]) -> list[Greeting]:
    answers = link.tell({"kind": "hello", **greeting}, names)
    greetings = []
    for name in names:
        try:
            description = Description.read(answers[name].get("description"))
            greetings.append(Greeting(name, description, answers[name].get("held_out")))
        except ValueError as error:
            raise PartyRefused(name, str(error)) from None
    return greetings


@dataclasses.dataclass
class _DeployedRun(Run):
    """A run whose parties' states are with them."""

    link: Link
    kept_by: dict[str, int] = dataclasses.field(default_factory=dict)  # the version that each party saved last

    @property
    def may_miss(self) -> bool:
        """Whether a party may stay away for some rounds."""
        return any(exchange.optional for exchange in self.link.plan.exchanges.values())

    def advance(self, most: int) -> None:
        self.link.oldest = int(self.parties.version)
        super().advance(most)

    def save_state(self, some: bool = True) -> None:
        """First the parties, then the server: a version that the server knows is on every party's disk.

        some: where a party may miss rounds, it may miss this too.
        """
        link = self.link
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
        parties = sorted(self.link.not_finite)
        if not parties:
            return None
        return (
            f"in round {self.rounds}, or before, {', '.join(map(title, parties))} said that its numbers are not finite"
        )

    def kept_by_name(self) -> None:
        """Blocks, personal models and multipliers are with their parties."""
