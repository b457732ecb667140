"""What a party knows while a run lasts: its rows, its states, and what of them it writes to its own disk."""

import dataclasses
import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from fedpact.compiling import Jitted
from fedpact.deploy.batch_secret import batch_secret
from fedpact.deploy.follower import Follower
from fedpact.deploy.noise import OwnNoise
from fedpact.deploy.promise import HeldOut, told_of
from fedpact.deploy.row_sets import admit_row_sets, sets_held_out, sets_of_evaluation, sets_of_problem
from fedpact.deploy.starts import with_drawn_starts
from fedpact.engines.exchanges import ExchangePlan
from fedpact.engines.remote import NOTHING
from fedpact.engines.sealing import check_sums, is_sealed, sealed, sealed_layout
from fedpact.engines.serialization import Layout, Refused, is_finite
from fedpact.evaluation.counts import Counts, count_rows
from fedpact.federation.description import Description
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table
from fedpact.files import private_folder, write
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.problem.oracle import Oracle
from fedpact.problem.scores import scores_of
from fedpact.problem.statement import Problem
from fedpact.protocol.ring import FEWEST
from fedpact.run.checkpoint import named_leaves, npz
from fedpact.run.fingerprint import digest, digest_of_data
from fedpact.run.saved_model import MODEL, Outcome, part_of
from fedpact.settings.base import Bound

if TYPE_CHECKING:
    from fedpact.deploy.party import Site
    from fedpact.deploy.secure_sums import OwnKeys
    from fedpact.privacy.masks import Masks
    from fedpact.run.pact import Pact


SERVER_LEAF = " of the server "  # what a party saves of the server's state beside its own


class Waiting(NamedTuple):
    """A reply that waits until it is known who is there.

    - `group`: everybody who was asked. `sealed`: the digest of the message with those who are there, and what was sent.
    """

    number: int
    reply: Layout
    arrays: dict[str, np.ndarray]
    group: list[str]
    sealed: tuple[bytes, dict[str, np.ndarray]] | None = None


class PartyRun:
    """A run at a party, from the meeting to its end."""

    def __init__(
        self,
        site: "Site",
        name: str,
        session: str,
        table: Table,
        held_out: HeldOut | None,
        recipe: AgreedRecipe | None,
        descriptions: tuple[Description, ...],
        meeting: dict[str, Any],
    ):
        pact = site.pact
        self.site, self.name, self.named, self.table = site, name, (name, session), table
        self.meeting_reply = b""  # repeated where the message comes twice
        self.held_out, self.recipe = held_out, recipe
        server = meeting.get("server")
        described = None if server is None else Description.read(server)
        agreement = dataclasses.replace(pact.agreement, descriptions=descriptions, server=described)
        if held_out is not None:
            agreement = dataclasses.replace(agreement, problem=told_of(held_out, pact.parties, meeting).problem())
        bound, own = pact.setting.bind_at_party(agreement, site.party, table)
        if isinstance(own, Oracle):
            self._admit_rows(site, agreement.problem, own, np.asarray(bound.start))
        if isinstance(own, Oracle) and site.policy.secret_batches:  # over columns all draw the same rows
            own = dataclasses.replace(own, batch_secret=batch_secret(site.folder, pact.digest))
        bound = bound.secured(pact.checks_points) if pact.is_secure else bound
        bound, self.noise = self._behind_noise(site, bound)
        self.own: Any = own if self.noise is None else self.noise.behind(own)
        bound = with_drawn_starts(bound, pact, agreement)
        self.masks: Masks | None = None  # where sums are secure
        self.waiting: Waiting | None = None  # where parties may miss exchanges: its last reply
        self.follower: Follower | None = None  # where points are checked
        self.bound, self.problem = bound, agreement.problem
        setting, self.shape = bound.setting, bound.shape
        self.role = "active" if setting.active and setting.active[self.place] else "passive"
        self.method = method = pact.method_for(setting).deployed(self._is_enough)
        self.plan = ExchangePlan.of(method, bound)
        self.active = dict(zip(pact.parties, setting.active or (False,) * len(pact.parties), strict=True))
        self._check_sums(pact, setting)
        self.bucket = next(at for at, places in enumerate(bound.order) if self.place in places)
        self.states: dict[int, Any] = {NOTHING: None}
        self.made_by: dict[int, str] = {}
        self.steps: dict[str, Any] = {}
        self.last = 0
        self.last_reply: bytes | None = None
        self.number = self.enough = 0  # the message at work, and the last for which `enough` has come
        self.shape = bound.shape
        self.saved_server: list[np.ndarray] | None = (
            None  # of a run that is resumed, what it knew of the server's state
        )
        exchanges = self.plan.exchanges.values()
        told = max(sealed_layout(e.reply, True).size for e in exchanges) if pact.checks_points else 0
        self.most = told + max(self.shape.size * 8, *(e.message.size for e in exchanges))

    def _behind_noise(self, site: "Site", bound: Bound) -> tuple[Bound, OwnNoise | None]:
        """Where the pact has `fp.DifferentialPrivacy`, the problem as it is told, and what this party adds to its answers."""
        try:
            private = site.pact.private(bound)
        except ValueError as error:
            raise Refused(str(error)) from None
        if private is None:
            site.policy.admit_noise(None, None, None)
            return bound, None
        return private.traced(bound), OwnNoise(private, bound, site.folder, site.pact.digest, site.policy)

    def _admit_rows(self, site: "Site", problem: Problem, own: Oracle, start: np.ndarray) -> None:
        """Refuse numbers whose difference is over too few rows."""
        least, pact = site.policy.min_rows, site.pact
        if least == 1:
            return
        sets = list(sets_of_problem(problem, own, start))
        if pact.evaluate is not None:
            sets += sets_of_evaluation(pact.question(), self.table, least)
        admit_row_sets(sets, least)
        if self.held_out is not None and pact.promise is not None:
            admit_row_sets(list(sets_held_out(pact.promise.statements.means, self.held_out.rows)), least)

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

    def _check_sums(self, pact: "Pact", setting: Setting) -> None:
        try:
            if pact.is_secure:
                check_sums(self.plan, self.bound.discloses)
            else:
                pact.check_in_the_clear(setting)
        except ValueError as error:
            raise Refused(str(error)) from None

    def step(self, words: dict[str, Any], arrays: dict[str, np.ndarray], received: bytes) -> dict[str, np.ndarray]:
        """Run the step that a message names, and put its new state beside the older ones. received: the message's digest."""
        name = str(words.get("exchange"))
        if name not in self.plan:
            raise Refused(f"no exchange of this run is called {name!r}")
        exchange, ahead = self.plan[name], None
        if exchange.among not in (None, self.role):
            raise Refused(f"{name!r} is for {exchange.among} parties, and it is {self.role}")
        if self.site.pact.checks_points:
            ahead, arrays = (self.follower or self._follower(words)).follow(name, arrays)
        exchange.message.check(arrays, finite=words.get("finite") is not False)
        if name not in self.steps:
            self.steps[name] = Jitted(exchange.step), exchange.drawn and Jitted(exchange.drawn)
        (step, drawn), message = self.steps[name], exchange.message.as_tree(arrays)
        if drawn is not None and self.place not in np.asarray(drawn(message)):
            raise Refused("it is asked to take part in a round whose draw leaves it out")
        before, self.number = self.states[self.version(words)], int(words["number"])
        self.site.askings.admit(name, [arrays, before, self._data], exchange.part == "round")
        own = self.own if self.noise is None else self.noise.fresh(self.own, exchange.part)
        state, reply = step(own, before, message)
        arrays = exchange.reply.by_name(reply)
        exchange.reply.check(arrays, finite=False)
        if self.site.pact.largest_reply is not None:
            exchange.reply.check_size(arrays, self.site.pact.largest_reply)
        number, oldest = self.number, int(words["oldest"][self.site.party])
        self.states = {v: s for v, s in self.states.items() if v == NOTHING or v >= oldest} | {number: state}
        self.made_by = {v: by for v, by in self.made_by.items() if v in self.states} | {number: name}
        if ahead is not None:
            ahead.answers(name, number, received)
            self.follower = ahead
        if not self.site.pact.is_secure or not is_sealed(exchange.reply):
            return arrays
        if not all(map(is_finite, arrays.values())):  # the server learns no more than that somebody's are not
            self.site.status.warn(f"its numbers in {exchange.title!r} are not finite")
        group = [n for n, active in self.active.items() if exchange.among in (None, "active" if active else "passive")]
        if self.site.pact.some_missing:
            self.waiting = Waiting(number, exchange.reply, arrays, group)
            return {}
        assert self.masks is not None
        return sealed(exchange.reply, arrays, self.masks, group, number, received)

    def sealed_for(self, words: dict[str, Any], received: bytes, keys: "OwnKeys | None") -> dict[str, np.ndarray]:
        """Its last reply, masked for those whose keys are in the message; for no others after that. received: its digest."""
        waiting, told = self.waiting, words.get("keys")
        if waiting is None or keys is None or words.get("number") != waiting.number:
            raise Refused(f"it has no reply to message {words.get('number')} that waits for the other parties")
        if waiting.sealed is not None:
            if waiting.sealed[0] != received:
                raise Refused(
                    "it has sealed this reply for other parties already: a second sum would tell the difference"
                )
            return waiting.sealed[1]
        if not isinstance(told, dict) or self.site.party not in told or not set(told) <= set(waiting.group):
            raise Refused("those who are there are not among the pact's parties, or it is not among them itself")
        fewest = max(FEWEST, self.site.policy.min_parties)
        if len(told) < fewest:
            raise Refused(f"a sum over {', '.join(told)} alone: there have to be {fewest} parties at least")
        among = [name for name in waiting.group if name in told]
        arrays = sealed(waiting.reply, waiting.arrays, keys.masks(words, among), among, waiting.number, received)
        self.waiting = waiting._replace(arrays={}, sealed=(received, arrays))
        return arrays

    def _follower(self, words: dict[str, Any]) -> Follower:
        """What follows the server, from the first message on, which brings the secret of all parties."""
        pact, masks = self.site.pact, self.masks
        assert masks is not None
        first = pact.parties[0]
        if self.site.party != first:
            try:
                masks.open(first, (words.get("envelopes") or {}).get(self.site.party))
            except ValueError as error:
                raise Refused(str(error)) from None
        follower = Follower(self.method, self.bound, self.plan, pact.goal(self.method), pact.agreement.seed, masks)
        follower.saved = self.saved_server
        return follower

    def evaluate(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> Counts:
        """Its own rows, scored with the answer and counted; groups of fewer rows than its policy demands are withheld."""
        pact, threshold = self.site.pact, words.get("threshold")
        if pact.evaluate is None or pact.columns:
            raise Refused("its pact asks for no evaluation at the parties")
        layout = parameters_layout(self.shape.size)
        layout.check(arrays)
        if not isinstance(threshold, float):
            raise Refused(f"the threshold {threshold!r} is no number")
        if self.follower is not None:
            usual, stated = pact.question().threshold, "threshold" in pact.evaluate
            shift = None if stated and threshold == usual else threshold - usual
            self.follower.check_answer(layout.as_tree(arrays), shift)
        kept = self.states[self.version(words)]
        self.site.askings.admit("evaluation", [threshold, arrays, kept, self._data])
        own = pact.setting.decides_with(kept, layout.as_tree(arrays))
        asked = pact.question()
        rows = max(asked.min_rows, self.site.policy.min_rows)
        asked = dataclasses.replace(asked, threshold=threshold, min_rows=rows)
        model = pact.problem.model
        assert model is not None, "a question about decisions is about a model's"
        scores = scores_of(model, self.shape.unravel(own), self.table)
        return count_rows(self.site.party, self.table, scores, asked)

    # on the party's own disk

    def save(self, version: int, called: int, kept: int | None) -> None:
        """Write a version under the name by which the server will ask for it, beside the one that it `kept` last."""
        self.states[called], self.made_by[called] = self.states[version], self.made_by[version]
        words = {"run": self.name, "made_by": self.made_by[version], "data": self._data}
        arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(self.states[version])}
        if self.follower is not None:
            arrays |= {f"{SERVER_LEAF}{k}": leaf for k, leaf in enumerate(self.follower.leaves())}
        owner = np.frombuffer(json.dumps(words).encode(), np.uint8)
        private_folder(self.folder)
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
        if words["data"] != self._data:
            raise Refused("its rows are not those that the run began with; begin a new run")
        if words["made_by"] not in self.plan:
            raise Refused("its saved state belongs to another run; begin a new run")
        like: Layout = self.plan[words["made_by"]].state
        known = sorted(
            (n for n in arrays if n.startswith(f"state{SERVER_LEAF}")), key=lambda n: int(n.rpartition(" ")[2])
        )
        server = [arrays.pop(n) for n in known]
        self.saved_server = server or None
        names = [n for n, _ in named_leaves(like.specs[self.bucket])]
        if sorted(f"state{n}" for n in names) != sorted(arrays):
            raise Refused("its saved state belongs to another method; begin a new run")
        leaves = [arrays[f"state{n}"] for n in names]
        state = jax.tree.unflatten(jax.tree.structure(like.specs[self.bucket]), leaves)
        self.states[called], self.made_by[called] = state, words["made_by"]
        self.last = called

    def hand_out(self, version: int, outcome: Outcome) -> None:
        """What the party keeps of the answer, by name; its own model, or over columns its part, also as `fp.load` reads it."""
        kept = self.states[version]
        arrays = {name.lstrip(".") or "own": np.asarray(leaf) for name, leaf in named_leaves(kept)}
        private_folder(self.folder)
        write(self.folder / "own.npz", npz(arrays))
        own, pact = self.bound.own_parameters(self.method, self.site.party, kept), self.site.pact
        if own is not None:
            model = self.own.model if pact.columns else self.problem.model
            part = part_of(
                self.problem, model, own, self.site.party, pact.parties, outcome, self.table.features, self.recipe
            )
            part.save(self.folder / MODEL)

    def _file(self, version: int) -> pathlib.Path:
        return self.folder / f"state-{version}.npz"

    @functools.cached_property
    def _data(self) -> str:
        """A digest of the party's rows, and of its own set where it has one."""
        own = [np.asarray(leaf) for leaf in jax.tree.leaves(getattr(self.own, "personal", None))]
        return digest([digest_of_data({self.site.party: self.table}, None), own])


def parameters_layout(size: int) -> Layout:
    """The message of an evaluation: the answer's flat parameters."""
    return Layout.of(jax.ShapeDtypeStruct((size,), np.float64))


def _number(file: pathlib.Path) -> int:
    return int(file.stem.partition("-")[2])
