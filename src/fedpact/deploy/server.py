"""The server's end of a run: greet the parties, run the method over whatever carries messages, certify, save."""

import dataclasses
import json
import os
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpact import __about__
from fedpact.deploy.earlier_runs import PROMISE, REPORT, put_aside
from fedpact.deploy.evaluation import evaluate_at_parties, labels_at_server
from fedpact.deploy.matching import labels_in_order, match_over_parties
from fedpact.deploy.party import VERSIONS
from fedpact.deploy.preparation import fit_over_parties
from fedpact.deploy.promise import Told, tested
from fedpact.deploy.starts import with_drawn_starts
from fedpact.deploy.status import STATUS, Status, Watched, read, until_the_end
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.remote import HUGE, NOTHING, Channel, Link, PartyRefused, RemoteNetwork
from fedpact.engines.sealing import check_sums
from fedpact.federation.description import Description
from fedpact.federation.rows import checked_seed, title
from fedpact.files import write
from fedpact.precision import in_double, kept_programs
from fedpact.run.checkpoint import Folder
from fedpact.run.fingerprint import digest
from fedpact.run.loop import Run, checked_limits
from fedpact.run.pact import EVALUATION, Pact
from fedpact.run.progress import ProgressLine
from fedpact.run.promise import Promise
from fedpact.run.result import Result
from fedpact.run.saved_model import Outcome, reads_features
from fedpact.run.watching import finished

PRIVACY = "privacy.json"  # in the server's folder: what a run with noise has told of single rows


@in_double
def serve(
    pact: str | os.PathLike[str],
    channel: Channel,
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    measure_again: bool = False,
    progress: bool | None = None,
) -> Result | Promise:
    """Run a pact over parties that a channel reaches; where it has a promise, test it at the end and return that.

    folder: the server's own, for its state, the result with its page, and status.json (fedpact.deploy.status); a run that has
    ended is put aside in `earlier`. resume: go on with the run that it holds (or begin, if none). measure_again: with resume, no
    further round, only the certificate. progress: a live line on stderr (default: on a terminal).

    Over columns, labels and groups are the pact's `server`, or what `load` gives for the first active party on this machine:
    the server is the label holder's. A party's block, its own model and its own multipliers are written to the party's folder.
    Raises PartyLost where a party stays away or refuses; what was saved before can be resumed.
    """
    stated, home = Pact(pact), Folder(folder)
    home.check_room()
    if not resume:
        put_aside(home)
    before = read(home.path / STATUS) or {}
    status = Status(home.path, "server", stated.digest, run_ended=before.get("run_ended"))
    with until_the_end(status):
        return _begun(stated, Watched(channel, status), home, resume, measure_again, progress, status)


def _begun(
    stated: Pact,
    channel: Watched,
    home: Folder,
    resume: bool,
    measure_again: bool,
    progress: bool | None,
    status: Status,
) -> Result | Promise:
    before = home.owner() if resume and home.holds_a_run else None
    if before is not None and "kept_by" not in before:
        raise ValueError(
            f"{home.path} holds a run in one process; choose another folder for one with parties elsewhere"
        )
    run = secrets.token_hex(8) if before is None else str(before["run"])
    active = tuple(name in stated.active for name in stated.parties)
    link = Link(channel, stated.parties, active, run, secrets.token_hex(8), secure=stated.is_secure)
    link.checked, link.some_missing = stated.checks_points, stated.some_missing
    link.number = NOTHING + 1 if before is None else int(before["version_of_states"])
    status.say(f"run {run} of pact {stated.digest}, {'resumed' if before else 'begun'}", run=run)
    with kept_programs():
        result = _served(stated, link, home, resume, before, measure_again, progress, status)
    end = str(result).splitlines()[0]
    status.say(end, phase="ended", message=end, awaited=[], run_ended=run)
    return result


def _served(
    pact: Pact,
    link: Link,
    home: Folder,
    resume: bool,
    before: dict[str, Any] | None,
    measure_again: bool,
    progress: bool | None,
    status: Status,
) -> Result | Promise:
    greeting: dict[str, Any] = {"digest": pact.digest, "versions": VERSIONS}
    watch = pact.watch()
    agreed = fit_over_parties(pact, link, home, greeting, resumed=before is not None)
    if agreed is not None:
        greeting["recipe"] = agreed.to_json()
    rows = match_over_parties(pact, link, home, greeting, before is not None, progress)
    greeted = _greeted(link, pact.parties, greeting)
    descriptions = [each.description for each in greeted]
    agreement = dataclasses.replace(pact.agreement, descriptions=tuple(descriptions))
    told = None
    if pact.promise is not None:
        told = Told(pact.promise, {each.name: each.held_out for each in greeted})
        agreement = dataclasses.replace(agreement, problem=told.problem())
    own = pact.server_table(agreed)
    own = None if own is None else labels_in_order(pact, own, rows)
    bound, server = pact.setting.bind_at_server(
        agreement, own, lambda party: labels_in_order(pact, pact.table(party), rows)
    )
    bound = bound.secured(pact.checks_points) if pact.is_secure else bound
    private = pact.private(bound)
    if private is not None:
        if before is not None:
            raise ValueError(
                f"{home.path} holds a run with noise, whose rounds would be told, and accounted, twice; begin a new one in "
                "another folder"
            )
        bound = private.traced(bound)
    labels = labels_at_server(pact)
    labels = None if labels is None else labels_in_order(pact, labels, rows)
    method = pact.method_for(bound.setting)
    bound = with_drawn_starts(bound, pact, agreement)
    link.plan, link.largest_reply = ExchangePlan.of(method, bound), pact.largest_reply
    if pact.is_secure:
        check_sums(link.plan, bound.discloses)
    else:
        pact.check_in_the_clear(bound.setting)
    needs_keys = pact.is_secure and not pact.some_missing
    meeting = {
        "kind": "meet",
        "descriptions": [each.as_words() for each in descriptions],
        "server": None if server is None else server.as_words(),
        **({} if told is None else {"held_out": told.words}),
        **({"keys": {each.name: each.session_key for each in greeted}} if needs_keys else {}),
    }
    plan = link.plan.digest

    def meet(names: Sequence[str], saved: dict[str, int] | None, version: int) -> None:
        """Let parties trace the method, and go on from versions that they saved under that name."""
        for name, answer in link.tell({**meeting, "resume": saved, "as": version}, names).items():
            link.envelopes |= answer.get("envelopes") or {}
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
    status.say(f"{', '.join(pact.parties)} are there; {words}", phase="rounds")
    run = _DeployedRun(bound, method, words, tolerance, seed, None, RemoteNetwork(link), link, status)
    owner = {
        "version": __about__.VERSION,
        "problem": digest(pact.problem.public),
        "algorithm": digest(method),
        "data": digest([each.as_words() for each in descriptions]),
        "start": digest(np.asarray(bound.start)),
        "seed": seed,
        "disclose": bound.discloses,
        **({"secure": True} if pact.is_secure else {}),
        "run": link.run,
        **({"recipe": pact.recipe_digest} if pact.recipe is not None or pact.recipes else {}),
    }
    run.open(home, owner, resume)
    status.say(run_ended=None)
    if before is not None:
        run.kept_by = before["kept_by"]
    if run.may_miss:
        if before is None:
            run.save_state(some=False)  # so that a party that is lost right away has something to come back with
        link.welcome = welcome
    home.path.mkdir(parents=True, exist_ok=True)
    with ProgressLine(progress) as line:
        end = run.go(run.rounds if measure_again else most, line, watch)
    status.say("the rounds are over", phase="ending")
    features = _features(pact, descriptions) if reads_features(pact.problem) else None
    result = run.result(agreement.problem, end, features, pact.recipe_of_labels() if pact.columns else agreed)
    if private is not None:
        result = private.told(result)
        write(home.path / PRIVACY, json.dumps(vars(result.privacy)).encode())
    promise = None if told is None or measure_again else tested(link, told, result, pact.hides_counts)
    outcome = Outcome.of(result).words()
    link.tell({"kind": "end", "versions": link.versions(int(run.kept.version)), "outcome": outcome})
    if pact.evaluate is not None and not measure_again:
        groups = {each.name: each.groups for each in greeted}
        evaluation = evaluate_at_parties(pact, link, run, result, labels, groups)
        evaluation.save(home.path / EVALUATION)
        result = dataclasses.replace(result, evaluation=evaluation)
    finished(watch, result)
    result.report(home.path / REPORT)
    if promise is None:
        return result
    write(home.path / PROMISE, f"{promise}\n".encode())
    return dataclasses.replace(promise, result=result)


class Greeting(NamedTuple):
    """A party that has agreed to the pact, with what it tells of its rows, and of those that it holds out."""

    name: str
    description: Description
    held_out: Any
    session_key: Any  # where sums are secure
    groups: Any  # of an evaluation whose counts are added up in secret


def _greeted(link: Link, names: Sequence[str], greeting: dict[str, Any]) -> list[Greeting]:
    answers = link.tell({"kind": "hello", **greeting}, names)
    greetings = []
    for name in names:
        try:
            description = Description.read(answers[name].get("description"))
            more = (answers[name].get(part) for part in ("held_out", "session_key", "groups"))
            greetings.append(Greeting(name, description, *more))
        except ValueError as error:
            raise PartyRefused(name, str(error)) from None
    return greetings


def _features(pact: Pact, descriptions: Sequence[Description]) -> Any:
    """The names of features that parties described, over columns by party; None where nobody has any."""
    by_party = {name: each.features for name, each in zip(pact.parties, descriptions, strict=True)}
    known = [names for names in by_party.values() if names is not None]
    return None if not known else by_party if pact.columns else known[0]


@dataclasses.dataclass
class _DeployedRun(Run):
    """A run whose parties' states are with them."""

    link: Link
    status: Status
    kept_by: dict[str, int] = dataclasses.field(default_factory=dict)  # the version that each party saved last

    @property
    def may_miss(self) -> bool:
        """Whether a party may stay away for some rounds."""
        return any(exchange.optional for exchange in self.link.plan.exchanges.values())

    def advance(self, most: int) -> None:
        self.link.oldest, self.link.round = int(self.parties.version), self.rounds + 1
        super().advance(most)
        known = len(self.history) > 0
        numbers = {name: float(self.history.last(name)) for name in ("objective", "violation") if known}
        traffic = {"bytes_up": self.cost.bytes_up, "bytes_down": self.cost.bytes_down}
        self.status.say(self.summary(), round=self.rounds, **numbers, **traffic)

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
            there = link.tell(words, some=some and self.may_miss, arrays=link.told())
        except BaseException as error:
            link.failure = error
            raise
        kept_by = self.kept_by | dict.fromkeys(there, version)
        self.owner |= {"version_of_states": version, "kept_by": kept_by}
        super().save_state()
        self.kept_by = kept_by  # now the parties may drop what they saved before

    def culprit(self) -> str | None:
        parties = self.link.first_suspects
        if self.link.spoilt:
            return (
                f"in round {self.rounds}, or before, some party's numbers were not finite; "
                "secure sums hide whose: look into the parties' own logs, or run with options = {'privacy': None}"
            )
        if not parties:
            return None
        names = ", ".join(map(title, parties))
        return f"in round {self.rounds}, or before, {names} sent numbers that are not finite, or above {HUGE:g}, first"

    def kept_by_name(self) -> None:
        """Blocks, personal models and multipliers are with their parties."""
