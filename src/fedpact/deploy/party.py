"""A party's end of a run: it answers messages from its own rows, keeps its own state, and refuses what was not agreed on.

match   where the pact has `align`: ids are matched, so that all have the same rows in the same order; see deploy/matching.py
survey, measure  where the pact has a recipe: what it tells of its columns so that all can agree; see deploy/preparation.py
keys    where sums are secure, before each question outside of rounds: its public key for that question
hello   the pact's digest: the party compares it with its own, asks its policy, and describes its table
meet    what all described: the party traces the method and makes its functions; or goes on from a state that it saved
step    one exchange: its state and the message go in, its new state and its reply come out
seal    where sums are secure and parties may miss exchanges: its reply to the step, masked for those who are there
enough  while a step is at work: the other parties have answered, so that a patient one comes to its end
count   where the pact has a promise: what it counts on its held-out rows at the candidate's parameters, once a run
keep    write a version of the state to the party's disk, so that a run can be resumed from it
end     how the run ended: write what the party keeps of the answer: its part of the model, its own model, its multipliers
evaluate  where the pact has `evaluate`: score the own rows with the answer, and reply with counts
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fedpact import __about__
from fedpact.deploy.askings import Askings
from fedpact.deploy.matching import MOST, Matching, own_rows
from fedpact.deploy.party_run import PartyRun
from fedpact.deploy.policy import Policy
from fedpact.deploy.preparation import Preparing, agreed_recipe
from fedpact.deploy.promise import HeldOut, apart_and_summed, reply_layout
from fedpact.deploy.secure_sums import OwnKeys
from fedpact.deploy.status_of_party import PartyStatus
from fedpact.engines.serialization import HEADER, Refused, is_finite, pack, unpack
from fedpact.engines.summing import sealed_sums
from fedpact.evaluation.counts import groups_of
from fedpact.federation.description import Description
from fedpact.federation.table import Table
from fedpact.precision import compiled_by_one, in_double, kept_programs
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.recipe import Recipe
from fedpact.run.pact import Pact
from fedpact.run.pact_files import pact_files
from fedpact.run.saved_model import Outcome

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
        self.policy = Policy.read(policy)
        self.policy.admit_files(pact_files(pact))
        self.pact = Pact(pact)
        if party not in self.pact.parties:
            raise ValueError(f"{party!r} is not in the pact, whose parties are {', '.join(self.pact.parties)}")
        self.party = party
        self.folder = pathlib.Path(folder)
        self.askings = Askings(self.folder, self.pact.digest, self.policy)
        # the run and the session of the last greeting, the rows for it, those that are held out, and the recipe
        self.greeted: tuple[str, str, Table, HeldOut | None, AgreedRecipe | None] | None = None
        self.described: Description | None = None
        self.preparing: tuple[str, Preparing] | None = None  # the run, and what is told of the raw frame in it
        self.matching: Matching | None = None  # of the last run that matched ids
        self.run: PartyRun | None = None
        self.keys: OwnKeys | None = None  # of the last greeting, where sums are secure
        self.received = b""  # a digest of the message that is being answered
        self._one_at_a_time = threading.Lock()
        self.status = PartyStatus(self.folder, party, self.pact.digest)

    @in_double
    def answer(self, message: bytes) -> bytes:
        """The answer to a message; a refusal is one too. Why something failed here is written to the party's own folder."""
        reply = self._answer(message)
        self.status.answered(len(reply))
        return reply

    def _answer(self, message: bytes) -> bytes:
        words: dict[str, Any] = {}
        try:
            # a meeting has the words of all parties, and other messages the arrays that the plan says
            told = HEADER * (1 + len(self.pact.parties))
            words, arrays = unpack(message, max(self._most(), told + (0 if self.run is None else self.run.most)), told)
            answers: dict[str, Callable[..., bytes]] = {
                "hello": self._hello, "meet": self._meet, "step": self._step, "keep": self._keep, "end": self._end,
                "evaluate": self._evaluate, "count": self._count, "survey": self._survey, "measure": self._measure,
                "match": self._match, "keys": self._session_key, "seal": self._seal,
            }  # fmt: skip
            self.status.asked(words, len(message))
            if words.get("kind") == "enough":
                return self._enough(words)
            if words.get("kind") not in answers:
                raise Refused(f"a message of the kind {words.get('kind')!r} is unknown here")
            with self._one_at_a_time, kept_programs():
                self.received = hashlib.sha256(message).digest()
                return answers[words["kind"]](words, arrays)
        except UnknownRun as error:
            return self._reply(words, refused=str(error), restarted=True)
        except Refused as error:
            self.status.refused(str(error))
            return self._reply(words, refused=str(error))
        except Exception as error:  # its text may hold values of rows
            self.status.failed(error)
            return self._reply(words, refused=f"its process failed ({type(error).__name__}); its own log says why")

    def _most(self) -> int:
        """Bytes of the longest message that may come."""
        matching = 0 if self.pact.align is None else MOST if self.matching is None else self.matching.most
        return max(HEADER, matching, 0 if self.run is None else self.run.most)

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
        pact = self.pact
        self.policy.admit(pact.digest)
        self.policy.admit_sums(len(pact.parties), pact.is_secure, pact.keys is not None, bool(pact.disclose))
        self.policy.admit_points(pact.checks_points, pact.keys is not None)
        if self.pact.algorithm is not None:
            self.policy.admit_batch(self.pact.algorithm.rows_per_mean)
        return names[0], names[1]

    def _match(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run, _ = self._admitted(words)
        if self.matching is None or self.matching.run != run:
            if words.get("part") != "count":
                raise Refused("it has begun no matching in this run, or its process was restarted; start the run again")
            self.matching = Matching(self.pact, self.party, self.policy, self.folder, run)
        more, told = self.matching.answer(words, arrays)
        return self._reply(words, told, **more)

    def _survey(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        (run, _), recipe = self._admitted(words), self.pact.recipe
        if not isinstance(recipe, Recipe):
            raise Refused("its pact has no recipe to be fitted")
        self.askings.admit("survey", None)
        preparing = self._preparing(run, recipe)
        survey = preparing.survey
        told = survey.sums | survey.extremes
        if self.pact.is_secure:
            preparing.check_summable(survey.sums, len(self.pact.parties))
            told = self._sealed(words, survey.sums, survey.extremes)
        return self._reply(words, told, survey=survey.words)

    def _session_key(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        if not self.pact.is_secure:
            raise Refused("its pact adds up in the clear, which takes no keys")
        self.keys = OwnKeys(self.pact, self.party, self.policy, str(words.get("run")), str(words.get("session")))
        return self._reply(words, session_key=self.keys.told())

    def _sealed(
        self, words: dict[str, Any], sums: dict[str, np.ndarray], apart: dict[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Numbers outside of the method's exchanges, masked by the keys in the message; `apart`: what is told in the clear."""
        if self.keys is None:
            raise Refused("it was not asked for its key: where sums are secure, that comes first")
        return sealed_sums(sums, self.keys.masks(words), self.pact.parties, self.received, apart)

    def _preparing(self, run: str, recipe: Recipe) -> Preparing:
        """What is told of the raw frame in a run; a process that was restarted looks at the frame again."""
        if self.preparing is None or self.preparing[0] != run:
            self.preparing = run, Preparing(recipe, self.party, self.pact.frame(self.party), self.policy)
        return self.preparing[1]

    def _measure(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run, _ = self._admitted(words)
        if self.preparing is None or self.preparing[0] != run:
            raise Refused("it has not told of its columns in this run: the first message of a run is a survey")
        asked = {n: w for n, w in words.items() if n not in ("run", "session", "keys")}
        self.askings.admit("measure", [asked, arrays])
        told = self.preparing[1].measure(words, arrays)
        if self.pact.is_secure:
            self.preparing[1].check_summable(told, len(self.pact.parties))
            told = self._sealed(words, told)
        return self._reply(words, told)

    def _hello(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        names = self._admitted(words)
        recipe, few = agreed_recipe(self.pact, words, lambda recipe: self._preparing(names[0], recipe))
        self.askings.admit("hello", words.get("recipe"))
        table, setting = self.pact.table(self.party, recipe, few), self.pact.setting
        recipe = table.recipe  # over columns the party's own
        table = own_rows(self.pact, self.party, self.folder, names[0], table)
        held_out, agreed = None, self.pact.promise
        if agreed is not None:
            table, out = agreed.drawn(self.party, table)
            held_out = HeldOut(agreed, self.party, out, self.folder, names[0])
            tested = (f"{each.mean}, held out," for each in agreed.statements.means)
            self.policy.admit_means(list(zip(tested, held_out.counts, strict=True)))
        if setting.sends_row_outputs:
            self.policy.admit_row_outputs()
        more: dict[str, Any] = {}
        description, means = setting.describe(self.pact.agreement, self.party, table)
        self.policy.admit_means(means)
        if self.pact.evaluate is not None and not self.pact.columns:
            more["groups"] = self._groups(table)
        self.greeted = names[0], names[1], table, held_out, recipe
        self.described = Description.read(json.loads(json.dumps(description.as_words())))  # as it arrives
        if held_out is not None:
            more["held_out"] = held_out.as_words()
        if self.pact.is_secure and not self.pact.some_missing:
            self.keys = OwnKeys(self.pact, self.party, self.policy, *names)
            more["session_key"] = self.keys.told()
        return self._reply(words, description=description.as_words(), **more)

    def _groups(self, table: Table) -> dict[str, Any] | None:
        """The groups of the pact's evaluation, where its counts are added up in secret; None where each party tells its own."""
        question = self.pact.question()
        question.check_columns(self.party, table)
        if not self.pact.hides_counts:
            return None
        few = max(question.min_rows, self.policy.min_rows)
        counted, withheld = groups_of(table, dataclasses.replace(question, min_rows=few))
        return {"groups": list(counted), "withheld": list(withheld)}

    def _meet(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        named = words.get("run"), words.get("session")
        if self.run is not None and self.run.named == named:
            return self.run.meeting_reply  # the message came twice
        if self.greeted is None or self.greeted[:2] != named:
            raise Refused("it has not greeted this run: the first message of a run is a hello")
        descriptions = tuple(Description.read(each) for each in words["descriptions"])
        if len(descriptions) != len(self.pact.parties):
            raise Refused(f"{len(descriptions)} parties are described, and the pact has {len(self.pact.parties)}")
        own = self.pact.parties.index(self.party)
        if descriptions[own] != self.described:
            raise Refused("the server describes its table otherwise than it did itself")
        run = PartyRun(self, *self.greeted, descriptions, words)
        if self.pact.is_secure and not self.pact.some_missing and self.keys is not None:
            run.masks = self.keys.masks(words)
        if words.get("resume") is not None:
            if self.party not in words["resume"]:
                raise Refused("nothing of its state was saved in this run; begin a new one")
            run.load(int(words["resume"][self.party]), int(words["as"]))
        more = {}
        if self.pact.checks_points and run.masks is not None and self.party == self.pact.parties[0]:
            more["envelopes"] = run.masks.envelopes()
        run.meeting_reply = self._reply(words, plan=run.plan.digest, **more)
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
        is_new, more = words.get("exchange") not in run.steps, {}
        with compiled_by_one() if is_new else contextlib.nullcontext():
            reply = run.step(words, arrays, self.received)
        if run.waiting is not None and run.waiting.number == number:
            self.keys = OwnKeys(self.pact, self.party, self.policy, run.name, f"{run.named[1]} {number}")
            more["session_key"] = self.keys.told()
        answer = self._reply(words, reply, number=number, finite=all(map(is_finite, reply.values())), **more)
        run.last, run.last_reply = number, answer
        return answer

    def _seal(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        return self._reply(words, run.sealed_for(words, self.received, self.keys), number=words.get("number"))

    def _enough(self, words: dict[str, Any]) -> bytes:
        run = self._same(words)
        run.enough = max(run.enough, int(words["number"]))
        return self._reply(words)

    def _count(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        if run.held_out is None:
            raise Refused("the pact has no promise, so nothing is held out")
        self.askings.admit("count", arrays)
        if run.follower is not None:
            asked = run.held_out.candidate(run.shape, arrays)
            run.follower.check_answer(asked.parameters, float(asked.threshold_shift))
        counts = run.held_out.answer(run.shape, arrays)
        if not self.pact.hides_counts:
            return self._reply(words, reply_layout(run.held_out.agreed).by_name(counts))
        told, summed = apart_and_summed(run.held_out.agreed, counts)
        return self._reply(words, self._sealed(words, summed, told) if summed else told)

    def _keep(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        if run.follower is not None:
            run.follower = run.follower.after(arrays)[0]
        try:
            run.save(run.version(words), int(words["as"]), words["kept"].get(self.party))
        except OSError as error:
            raise Refused(f"it cannot save its state: {error.strerror}") from None
        return self._reply(words)

    def _end(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        run = self._same(words)
        try:
            outcome = Outcome.read(words.get("outcome"))
        except ValueError as error:
            raise Refused(str(error)) from None
        run.hand_out(run.version(words), outcome)
        self.status.ended(outcome)
        return self._reply(words)

    def _evaluate(self, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
        counts = self._same(words).evaluate(words, arrays)
        if not self.pact.hides_counts:
            return self._reply(words, counts.arrays(), **counts.words())
        try:
            told = counts.over(list(words.get("groups") or ()))
        except (TypeError, ValueError) as error:
            raise Refused(str(error)) from None
        return self._reply(words, self._sealed(words, told.arrays()))

    def _same(self, words: dict[str, Any]) -> PartyRun:
        if self.run is None or self.run.named != (words.get("run"), words.get("session")):
            raise UnknownRun(
                "it does not know this run, since its process was restarted; resume the run, which greets it again"
            )
        return self.run
