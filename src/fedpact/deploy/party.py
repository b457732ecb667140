"""A party's end of a run: it answers messages from its own rows, keeps its own state, and refuses what was not agreed on.

survey, measure  where the pact has a recipe: what it tells of its columns so that all can agree; see deploy/preparation.py
hello   the pact's digest: the party compares it with its own, asks its policy, and describes its table
meet    what all described: the party traces the method and makes its functions; or goes on from a state that it saved
step    one exchange: its state and the message go in, its new state and its reply come out
enough  while a step is at work: the other parties have answered, so that a patient one comes to its end
count   where the pact has a promise: what it counts on its held-out rows at the candidate's parameters, once a run
keep    write a version of the state to the party's disk, so that a run can be resumed from it
end     write what the party keeps of the answer: its block of parameters, its own model, its multipliers
evaluate  where the pact has `evaluate`: score the own rows with the answer, and reply with counts
"""

import dataclasses
import json
import os
import pathlib
import platform
import re
import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedpact import __about__
from fedpact.deploy.policy import Policy
from fedpact.deploy.preparation import Preparing, agreed_recipe
from fedpact.deploy.promise import HeldOut, told_of
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.remote import NOTHING
from fedpact.engines.serialization import HEADER, Layout, Refused, is_finite, pack, unpack
from fedpact.evaluation.counts import Counts, count_rows
from fedpact.federation.description import Description
from fedpact.federation.table import Table
from fedpact.precision import in_double, kept_programs
from fedpact.preparation.recipe import Recipe
from fedpact.problem.decision_rule import scores_of
from fedpact.run.checkpoint import named_leaves, npz, write
from fedpact.run.fingerprint import digest, digest_of_data
from fedpact.run.pact import Pact

# What both ends need alike: a digest covers code, which differs between minor versions of Python.
VERSIONS = {"fedpact": __about__.VERSION, "Python": ".".join(platform.python_version_tuple()[:2])}


class UnknownRun(Refused):
    """A message of a run of which this process knows nothing."""


class Site:
    """One party of a pact. Messages are answered one after the other, whatever threads bring them, but for `enough`.

    - `pact`: the file. `party`: its name there.
    - `folder`: where the party's own state is kept; nobody else reads it.
    - `policy`: a TOML file with the party's conditions (default: none; see fedpact.deploy.policy).
    """

    def __init__(
        self,
        pact: str | os.PathLike[str],
        party: str,
        folder: str | os.PathLike[str],
        policy: str | os.PathLike[str] | None = None,
    ):
        self.pact = Pact(pact)
        if party not in self.pact.parties:
            raise ValueError(f"{party!r} is not in the pact, whose parties are {', '.join(self.pact.parties)}")
        self.party = party
        self.folder = pathlib.Path(folder)
        self.policy = Policy.read(policy)
        # the run and the session of the last greeting, the rows for it, and those that are held out
        self.greeted: tuple[str, str, Table, HeldOut | None] | None = None
        self.preparing: tuple[str, Preparing] | None = None  # the run, and what is told of the raw frame in it
        self.run: _Run | None = None
        self._one_at_a_time = threading.Lock()

    @in_double
    def answer(self, message: bytes) -> bytes:
        """The answer to a message; a refusal is one too. Why something failed here is written to this process's own log."""
        words: dict[str, Any] = {}
        try:
            words, arrays = unpack(message, HEADER if self.run is None else self.run.most)
            answers: dict[str, Callable[..., bytes]] = {
                "hello": self._hello, "meet": self._meet, "step": self._step, "keep": self._keep, "end": self._end,
                "evaluate": self._evaluate, "count": self._count, "survey": self._survey, "measure": self._measure,
            }  # fmt: skip
            if words.get("kind") == "enough":
                return self._enough(words)
            if words.get("kind") not in answers:
                raise Refused(f"a message of the kind {words.get('kind')!r} is unknown here")
            with self._one_at_a_time, kept_programs():
                return answers[words["kind"]](words, arrays)
        except UnknownRun as error:
            return self._reply(words, refused=str(error), restarted=True)
        except Refused as error:
            return self._reply(words, refused=str(error))
        except Exception as error:  # its text may hold values of rows
            traceback.print_exc()
            return self._reply(words, refused=f"its process failed ({type(error).__name__}); its own log says why")

    def _reply(self, asked: dict[str, Any], arrays: dict[str, np.ndarray] | None = None, **words: Any) -> bytes:
        """An answer to these words."""
        whose = {"run": asked.get("run"), "session": asked.get("session"), "party": self.party}
        return pack({**whose, **words}, arrays)

    # before the first round

    def _admitted(self, words: dict[str, Any]) -> tuple[str, str]:
        """The names of the run and the session, where versions, pact and policy allow it."""
        for what, version in VERSIONS.items():
            theirs = (words.get("versions") or {}).get(what)
            if theirs != version:
                raise Refused(f"it has {what} {version}, and the server {theirs}; install the same")
        if words.get("digest") != self.pact.digest:
            raise Refused(
                f"its pact has the digest {self.pact.digest}, and the server's {words.get('digest')}: problem, parties, method, "
                "options or a constant that they read differ; send the same file to every party"
            )
        names = [str(words.get(name)) for name in ("run", "session")]
        if not all(re.fullmatch("[0-9a-f]{16}", name) for name in names):
            raise Refused("the run has no proper name")
        self.policy.admit(self.pact.digest)
        if self.pact.algorithm is not None:
            self.policy.admit_batch(self.pact.algorithm.rows_per_mean)
        return names[0], names[1]

    def _survey(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        (run, _), recipe = self._admitted(words), self.pact.recipe
        if not isinstance(recipe, Recipe):
            raise Refused("its pact has no recipe to be fitted")
        if self.preparing is None or self.preparing[0] != run:
            self.preparing = run, Preparing(recipe, self.party, self.pact.frame(self.party), self.policy)
        survey = self.preparing[1].survey
        return self._reply(words, survey.arrays, survey=survey.words)

    def _measure(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run, _ = self._admitted(words)
        if self.preparing is None or self.preparing[0] != run:
            raise Refused("it has not told of its columns in this run: the first message of a run is a survey")
        return self._reply(words, self.preparing[1].measure(words, arrays))

    def _hello(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        names = self._admitted(words)
        table, setting = self.pact.table(self.party, agreed_recipe(self.pact, words)), self.pact.setting
        held_out, agreed = None, self.pact.promise
        if agreed is not None:
            table, out = agreed.drawn(self.party, table)
            held_out = HeldOut(agreed, self.party, out, self.folder, names[0])
            tested = (f"{each.mean}, held out," for each in agreed.statements.means)
            self.policy.admit_means(list(zip(tested, held_out.counts, strict=True)))
        if setting.sends_row_outputs:
            self.policy.admit_row_outputs()
        description, means = setting.describe(self.pact.agreement, self.party, table)
        self.policy.admit_means(means)
        if self.pact.evaluate is not None and not self.pact.columns:
            self.pact.question().check_columns(self.party, table)
        self.greeted = names[0], names[1], table, held_out
        more = {} if held_out is None else {"held_out": held_out.as_words()}
        return self._reply(words, description=description.as_words(), **more)

    def _meet(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        named = words.get("run"), words.get("session")
        if self.run is not None and self.run.named == named:
            return self.run.meeting_reply  # the message came twice
        if self.greeted is None or self.greeted[:2] != named:
            raise Refused("it has not greeted this run: the first message of a run is a hello")
        descriptions = tuple(Description.read(each) for each in words["descriptions"])
        if len(descriptions) != len(self.pact.parties):
            raise Refused(f"{len(descriptions)} parties are described, and the pact has {len(self.pact.parties)}")
        run = _Run(self, *self.greeted, descriptions, words)
        if words.get("resume") is not None:
            if self.party not in words["resume"]:
                raise Refused("nothing of its state was saved in this run; begin a new one")
            run.load(int(words["resume"][self.party]), int(words["as"]))
        run.meeting_reply = self._reply(words, plan=run.plan.digest)
        self.run = run
        return run.meeting_reply

    # rounds

    def _step(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        number = words.get("number")
        if number == run.last and run.last_reply is not None:
            return run.last_reply  # the message came twice
        if not isinstance(number, int) or number <= run.last:
            raise Refused(f"message {number} comes late: {run.last} was answered already")
        reply = run.step(words, arrays)
        answer = self._reply(words, reply, number=number, finite=all(map(is_finite, reply.values())))
        run.last, run.last_reply = number, answer
        return answer

    def _enough(self, words: dict[str, Any]) -> bytes:
        run = self._same(words)
        run.enough = max(run.enough, int(words["number"]))
        return self._reply(words)

    def _count(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        if run.held_out is None:
            raise Refused("the pact has no promise, so nothing is held out")
        return self._reply(words, run.held_out.answer(run.shape, arrays))

    def _keep(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        run.save(run.version(words), int(words["as"]), words["kept"].get(self.party))
        return self._reply(words)

    def _end(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        run.hand_out(run.version(words))
        return self._reply(words)

    def _evaluate(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        counts = self._same(words).evaluate(words, arrays)
        return self._reply(words, counts.arrays(), **counts.words())

    def _same(self, words: dict[str, Any]) -> "_Run":
        if self.run is None or self.run.named != (words.get("run"), words.get("session")):
            raise UnknownRun(
                "it does not know this run, since its process was restarted; resume the run, which greets it again"
            )
        return self.run


class _Run:
    """What a party knows while a run lasts."""

    def __init__(
        self,
        site: Site,
        name: str,
        session: str,
        table: Table,
        held_out: HeldOut | None,
        descriptions: tuple[Description, ...],
        meeting: dict[str, Any],
    ):
        pact = site.pact
        self.site, self.name, self.named, self.table = site, name, (name, session), table
        self.meeting_reply = b""  # repeated where the message comes twice
        self.held_out = held_out
        server = meeting.get("server")
        described = None if server is None else Description.read(server)
        agreement = dataclasses.replace(pact.agreement, descriptions=descriptions, server=described)
        if held_out is not None:
            agreement = dataclasses.replace(agreement, problem=told_of(held_out, pact.parties, meeting).problem())
        bound, self.own = pact.setting.bind_at_party(agreement, site.party, table)
        setting, self.shape = bound.setting, bound.shape
        self.role = "active" if setting.active and setting.active[self.place] else "passive"
        method = pact.method_for(setting).deployed(self._is_enough)
        self.plan = ExchangePlan.of(method, bound)
        self.bucket = next(at for at, places in enumerate(bound.order) if self.place in places)
        self.states: dict[int, Any] = {NOTHING: None}
        self.made_by: dict[int, str] = {}
        self.steps: dict[str, Any] = {}
        self.asked: dict[str, int] = self._counted()
        self.last = 0
        self.last_reply: bytes | None = None
        self.number = self.enough = 0  # the message at work, and the last for which `enough` has come
        self.shape = bound.shape
        self.most = HEADER + max(self.shape.size * 8, *(e.message.size for e in self.plan.exchanges.values()))

    @property
    def folder(self) -> pathlib.Path:
        return self.site.folder / self.name

    @property
    def place(self) -> int:
        return self.site.pact.parties.index(self.site.party)

    def version(self, words: dict[str, Any]) -> int:
        """The version of its own state that a message means."""
        version = words["versions"][self.site.party]
        if version not in self.states:
            raise Refused(f"it has no version {version} of its state any more")
        return version

    def _is_enough(self) -> bool:
        """Asked by a patient step after each of its own steps."""
        return self.enough >= self.number

    def step(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the step that a message names, and put its new state beside the older ones."""
        name = str(words.get("exchange"))
        if name not in self.plan:
            raise Refused(f"no exchange of this run is called {name!r}")
        exchange = self.plan[name]
        if exchange.among not in (None, self.role):
            raise Refused(f"{name!r} is for {exchange.among} parties, and it is {self.role}")
        exchange.message.check(arrays, finite=words.get("finite") is not False)
        self._count(exchange.name, exchange.part == "round")
        if name not in self.steps:
            self.steps[name] = jax.jit(exchange.step)
        before, self.number = self.states[self.version(words)], int(words["number"])
        state, reply = self.steps[name](self.own, before, exchange.message.as_tree(arrays))
        arrays = exchange.reply.by_name(reply)
        exchange.reply.check(arrays, finite=False)
        number, oldest = self.number, int(words["oldest"][self.site.party])
        self.states = {v: s for v, s in self.states.items() if v == NOTHING or v >= oldest} | {number: state}
        self.made_by = {v: by for v, by in self.made_by.items() if v in self.states} | {number: name}
        return arrays

    def evaluate(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> Counts:
        """Its own rows, scored with the answer and counted; groups of fewer rows than its policy demands are withheld."""
        pact, threshold = self.site.pact, words.get("threshold")
        if pact.evaluate is None or pact.columns:
            raise Refused("its pact asks for no evaluation at the parties")
        layout = parameters_layout(self.shape.size)
        layout.check(arrays)
        if not isinstance(threshold, float):
            raise Refused(f"the threshold {threshold!r} is no number")
        self._count("evaluation", False)
        own = pact.setting.decides_with(self.states[self.version(words)], layout.as_tree(arrays))
        asked = pact.question()
        rows = max(asked.min_rows, self.site.policy.min_rows)
        asked = dataclasses.replace(asked, threshold=threshold, min_rows=rows)
        model = pact.problem.model
        assert model is not None, "a question about decisions is about a model's"
        scores = scores_of(model, self.shape.unravel(own), self.table)
        return count_rows(self.site.party, self.table, scores, asked)

    # on the party's own disk

    def _count(self, exchange: str, in_a_round: bool) -> None:
        """How often each exchange was asked for in this run, whatever the server says, over all starts of this process."""
        if self.site.policy.max_rounds is None:
            return
        self.asked[exchange] = self.asked.get(exchange, 0) + 1
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / "asked.json", json.dumps(self.asked).encode())
        self.site.policy.admit_exchange(self.asked[exchange], in_a_round)

    def _counted(self) -> dict[str, int]:
        file = self.folder / "asked.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def save(self, version: int, called: int, kept: int | None) -> None:
        """Write a version under the name by which the server will ask for it, beside the one that it `kept` last."""
        self.states[called], self.made_by[called] = self.states[version], self.made_by[version]
        words = {"run": self.name, "made_by": self.made_by[version], "data": self._data()}
        arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(self.states[version])}
        owner = np.frombuffer(json.dumps(words).encode(), np.uint8)
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self._file(called), npz({**{f"state{n}": a for n, a in arrays.items()}, "owner": owner}))
        for file in self.folder.glob("state-*.npz"):
            if _number(file) not in (called, kept):
                file.unlink()

    def load(self, version: int, called: int) -> None:
        """Go on from a version that was saved, which is called so from now on."""
        file = self._file(version)
        if not file.exists():
            raise Refused(f"it has saved no version {version} of its state in its folder; begin a new run")
        with np.load(file, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        words = json.loads(arrays.pop("owner").tobytes())
        if words["data"] != self._data():
            raise Refused("its rows are not those that the run began with; begin a new run")
        if words["made_by"] not in self.plan:
            raise Refused("its saved state belongs to another run; begin a new run")
        like: Layout = self.plan[words["made_by"]].state
        names = [n for n, _ in named_leaves(like.specs[self.bucket])]
        if sorted(f"state{n}" for n in names) != sorted(arrays):
            raise Refused("its saved state belongs to another method; begin a new run")
        leaves = [arrays[f"state{n}"] for n in names]
        state = jax.tree.unflatten(jax.tree.structure(like.specs[self.bucket]), leaves)
        self.states[called], self.made_by[called] = state, words["made_by"]
        self.last = called

    def hand_out(self, version: int) -> None:
        """What the party keeps of the answer, by name; see `fedpact.deploy.party`."""
        arrays = {name.lstrip(".") or "own": np.asarray(leaf) for name, leaf in named_leaves(self.states[version])}
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / "own.npz", npz(arrays))

    def _file(self, version: int) -> pathlib.Path:
        return self.folder / f"state-{version}.npz"

    def _data(self) -> str:
        """A digest of the party's rows, and of its own set where it has one."""
        own = [np.asarray(leaf) for leaf in jax.tree.leaves(getattr(self.own, "personal", None))]
        return digest([digest_of_data({self.site.party: self.table}, None), own])


def parameters_layout(size: int) -> Layout:
    """The message of an evaluation: the answer's flat parameters."""
    return Layout.of(jax.ShapeDtypeStruct((size,), np.float64))


def _number(file: pathlib.Path) -> int:
    return int(file.stem.partition("-")[2])
