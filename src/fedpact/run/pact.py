"""A pact: one Python file, the same at every site, with the problem, the parties and how each loads its own rows."""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedpact import __about__
from fedpact.evaluation.counts import Question
from fedpact.federation.columns import ColumnParties, split_columns
from fedpact.federation.rows import Parties, checked_seed, split_rows, title
from fedpact.federation.setting import Setting
from fedpact.federation.table import Table, as_table
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.over_columns import check_recipes, own_table
from fedpact.preparation.prepare import prepare, prepared, raw_frame
from fedpact.preparation.recipe import Recipe
from fedpact.privacy.differential import DifferentialPrivacy
from fedpact.privacy.secure_sums import SecureAggregation, is_secure
from fedpact.problem.fingerprint import digest
from fedpact.problem.split import SplitModel
from fedpact.problem.statement import Problem
from fedpact.promises.agreed import AgreedPromise
from fedpact.protocol.algorithm import Algorithm, Goal, Method
from fedpact.run.ask_promise import promised
from fedpact.run.evaluate import checked_confidence, evaluate
from fedpact.run.loop import checked_limits, goal_of
from fedpact.run.match import Matched, align, match
from fedpact.run.pact_definitions import Definitions
from fedpact.run.private import PrivateRun
from fedpact.run.promise import Promise
from fedpact.run.result import Result
from fedpact.run.selection import checked_starts, chosen, from_starts, protected, titled
from fedpact.run.solve import solve
from fedpact.run.summed import check_in_the_clear, usual_privacy
from fedpact.settings import bind, setting_of
from fedpact.settings.base import Agreement, Bound

EVALUATION = "evaluation.json"  # beside the files of a saved run


class Pact:
    """A pact file, read and checked.

    - `path`: of the Python file.
    - `parties`: the names of the parties, where the file does not define them (default: none).

    The file defines `problem`, `parties` (names) and `load(party) -> fp.Table`, and may define `algorithm`, `options` (of
    `fp.solve`, and `largest_reply`: the largest absolute number that a party elsewhere may send in an exchange; default: any
    finite one), `server` (a table or a function that returns one), and

    - `promise`: a dict of the terms of `fp.promise`, confidence, held_out, power, ranges; a run then ends with its test.
    - `evaluate`: options of `fp.evaluate`, such as {"label": "y", "group": "sex"}: the answer is evaluated at the end, on the
      parties' tables, with a promise on the rows that it was trained on.
    - `recipe`: an `fp.Recipe`, which all parties agree on before the run, or one that was fitted before; `load` and `server` then
      give raw frames. Over columns a dict with one for each party, which is fitted to its own columns at home.
    - `watch`: a function without arguments that gives a tracker, such as `lambda: fp.trackers.MLflow("clinics")`; only the
      process that leads the run calls it.
    - `keys`: a dict with the public key of each party, as `fedpact keys` prints it, by which parties know each other where sums
      are secure.
    - Over columns `active`, the parties with labels and groups (default: the first), `id`, the column of row identifiers, and
      `align`, the same where the parties hold different rows, whose ids are then matched privately before the run.

    Sums are secure (`fp.SecureAggregation`) where there are three parties or more and the method needs sums only; the options
    say otherwise with "privacy": None.

    Raises FileNotFoundError, and ValueError or TypeError where a definition is missing or of another type.
    """

    def __init__(self, path: str | os.PathLike[str], parties: Sequence[str] | None = None):
        self.path = pathlib.Path(path)
        stated = Definitions(self.path)
        self.problem: Problem = stated.part("problem", Problem, "what fp.minimize(...) gives")
        self.names_parties = stated.get("parties") is not None
        self.parties = stated.parties(parties)
        self.load: Callable[[str], Table] = stated.part("load", Callable, "a function load(party) -> fp.Table")
        self.algorithm = stated.algorithm()
        self.options = stated.options()
        self.evaluate = stated.evaluate()
        if self.evaluate is not None:
            self.question()
            checked_confidence(self.confidence)
        self.promise = self._promise(stated.promise())
        self.recipe: Recipe | AgreedRecipe | None = stated.get("recipe")
        self.recipes: dict[str, Recipe | AgreedRecipe] = {}  # over columns, by party
        self._server: Any = stated.get("server")
        self._watch = stated.watch()
        self.active = stated.active(self.parties, isinstance(self.problem.model, SplitModel))
        self.keys = stated.keys(self.parties)
        self.align = stated.align(self.columns)
        self.id: str | None = self.align or stated.get("id")
        self.matched: Matched | None = None  # the parties' tables, once `tables` has matched them
        self._check_recipe()
        _ = self.checks_points  # which may be impossible
        if isinstance(self.privacy, DifferentialPrivacy) and (self.evaluate is not None or self.promise is not None):
            raise ValueError(
                f"{self.path}: an evaluation or a promise counts rows without noise, which fp.DifferentialPrivacy does not "
                "allow; leave `evaluate` and `promise` out"
            )

    @property
    def largest_reply(self) -> float | None:
        """The largest absolute number that a party elsewhere may send in an exchange; None for any finite one."""
        return self.options.get("largest_reply")

    def _check_recipe(self) -> None:
        if isinstance(self.recipe, Mapping) and self.columns:
            try:
                check_recipes(self.recipe, self.parties)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self.path}: {error}") from None
            self.recipes, self.recipe = dict(self.recipe), None
        if not isinstance(self.recipe, Recipe | AgreedRecipe | None):
            raise TypeError(f"{self.path}: `recipe` should be an fp.Recipe, not {self.recipe!r}")
        if self.recipe is not None and self.columns:
            raise ValueError(
                f"{self.path}: over columns every party has a recipe of its own: recipe = {{{self.parties[0]!r}: fp.Recipe(...)}}"
            )
        if isinstance(self.recipe, Recipe) and self.promise is not None:
            raise ValueError(
                f"{self.path}: a recipe that is fitted in the run sees the rows that a promise holds out, so they would not be "
                "new: fit it on other rows, and let `recipe` be what was agreed on, fp.AgreedRecipe.from_json(...)"
            )

    def question(self, threshold: float | None = None) -> Question:
        """What the pact's `evaluate` asks of every party; `threshold`: of the result, where `evaluate` says nothing else."""
        stated = {name: value for name, value in (self.evaluate or {}).items() if name != "confidence"}
        return Question.of(self.problem, **{"threshold": threshold, **stated})

    @property
    def confidence(self) -> float:
        """Of the evaluation's intervals."""
        return (self.evaluate or {}).get("confidence", 0.95)

    def _promise(self, terms: Mapping[str, Any] | None) -> AgreedPromise | None:
        if terms is None:
            return None
        return AgreedPromise.of(self.problem, self.parties, seed=self.options.get("seed", 0), **terms)

    @property
    def privacy(self) -> Any:
        """What the options say; else secure sums, where the method needs sums only and there are three parties."""
        if "privacy" in self.options:
            return self.options["privacy"]
        return usual_privacy(self.problem, len(self.parties), len(self.active), self.algorithm)

    @property
    def is_secure(self) -> bool:
        """Whether the server learns sums over parties only."""
        return is_secure(self.privacy) or bool(getattr(self.privacy, "summed", False))  # shares of noise protect sums

    def private(self, bound: Bound) -> PrivateRun | None:
        """What parties draw noise by; None where they draw none. Raises ValueError where it cannot be accounted."""
        privacy = self.privacy
        if not isinstance(privacy, DifferentialPrivacy):
            return None
        if privacy.seed is not None:
            raise ValueError(
                f"{self.path}: fp.DifferentialPrivacy(seed={privacy.seed}): whoever has the pact could subtract the noise; "
                "across organisations leave seed= out"
            )
        return PrivateRun.of(privacy, chosen(self.algorithm, bound.setting, privacy), bound, None)

    @property
    def some_missing(self) -> bool:
        """Whether parties may miss exchanges."""
        return self.algorithm is not None and self.algorithm.may_miss

    @property
    def hides_counts(self) -> bool:
        """Whether an evaluation, and the test of limits over all rows, tell counts over all parties only: sums are secure, and
        nobody agreed to disclose more."""
        return self.is_secure and not self.columns and not self.options.get("disclose")

    @property
    def secure_sums(self) -> SecureAggregation | None:
        """The pact's secure sums, and whether their points are checked; None in the clear, and where noise has shares."""
        return SecureAggregation(self.checks_points) if is_secure(self.privacy) else None

    @property
    def checks_points(self) -> bool:
        """Whether every party computes the server's points itself and refuses others."""
        if not self.is_secure:
            return False
        asked = getattr(self.privacy, "checked", None)
        possible = not self.columns and self._server is None and not self.some_missing
        if asked and not possible:
            what = "over columns" if self.columns else "where the server has rows of its own"
            what = "where parties may miss rounds (participation below 1)" if self.some_missing else what
            raise ValueError(
                f"{self.path}: fp.SecureAggregation(checked=True): {what} parties cannot compute its points"
            )
        return possible and (self.keys is not None if asked is None else asked)

    def check_in_the_clear(self, setting: Setting) -> None:
        """Raises ValueError where Hessians in the clear would give rows away, and the options do not say `privacy` at all."""
        check_in_the_clear(self.options_for(setting), setting, self.options)

    @contextlib.contextmanager
    def with_parties(self) -> Iterator[pathlib.Path]:
        """The file for the sites: this one, or a copy that also defines the parties' names."""
        if self.names_parties:
            yield self.path
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / self.path.name
            copy.write_text(
                f"{self.path.read_text()}\n\nparties = {list(self.parties)!r}  # from `fedpact deploy --parties`\n"
            )
            yield copy

    @property
    def columns(self) -> bool:
        """Whether the parties hold columns of the same rows, and not rows."""
        return bool(self.active)

    @property
    def disclose(self) -> bool | None:
        """Whether parties disclose values in each round, as `fp.solve` says; None where it depends on how many there are."""
        if self.columns or self.starts > 1 or isinstance(self.privacy, DifferentialPrivacy):
            return False
        stated = self.options.get("disclose")
        return bool(stated) if self.is_secure else stated

    @property
    def digest(self) -> str:
        """A digest of what all sites must agree on: problem, parties, method, options, and the version of fedpact."""
        agreed = [self.parties, self.active, self.id, self.algorithm, dict(self.options), __about__.VERSION]
        agreed += [] if self.evaluate is None else [dict(self.evaluate)]
        agreed += [] if self.keys is None else [self.keys]
        if self.promise is not None:
            agreed += [self.promise.terms, [tested.range for tested in self.promise.statements.means]]
        if self.recipe is not None or self.recipes:
            agreed.append(self.recipe_digest)
        if self.align is not None:
            agreed.append(["align", self.align])
        return digest([digest(self.problem.public), *agreed])

    @property
    def recipe_digest(self) -> str:
        """A digest of the recipe, as it is stated or as it was fitted before."""
        stated = [self.recipes[name] for name in self.parties] if self.recipes else [self.recipe]
        parts = [each.to_json() if isinstance(each, AgreedRecipe) else each for each in stated]
        return digest(parts if self.recipes else parts[0])

    def options_for(self, setting: Setting) -> Algorithm:
        """The method for a setting: the pact's own or the default one, with its `privacy` option."""
        privacy = self.privacy
        own = chosen(self.algorithm, setting, privacy)
        return own if isinstance(privacy, DifferentialPrivacy) else protected(own, privacy)

    def method_for(self, setting: Setting) -> Method:
        """What runs: that method, bound to the setting with the pact's options `scale` and `starts`."""
        setting = dataclasses.replace(setting, scale=self.options.get("scale", True))
        return from_starts(self.options_for(setting), setting, self.starts)

    def title_for(self, setting: Setting) -> str:
        """That method in words."""
        return titled(self.options_for(setting), setting, self.starts)

    @property
    def starts(self) -> int:
        """From how many starts the problem is solved at once."""
        return checked_starts(self.options.get("starts", 1), self.options.get("disclose"))

    def goal(self, method: Method) -> Goal:
        """What the method aims at."""
        return goal_of(checked_limits(self.options.get("tolerance", 1e-4), 1)[0], method)

    @property
    def setting(self) -> type[Bound]:
        """The setting of the problem: rows, columns, or rows with personal models."""
        return setting_of(self.problem)

    @property
    def agreement(self) -> Agreement:
        """What all sites agree on besides the method."""
        start, seed = self.options.get("start"), checked_seed(self.options.get("seed", 0))
        matched = self.align is not None
        return Agreement(self.problem, self.parties, self.active, self.id, matched, start, seed, self.disclose)

    def bind(self, tables: Parties | ColumnParties) -> Bound:
        """The problem with all parties' tables, as `tables` gives them."""
        agreed = self.agreement
        server = None if self.columns else self.server_table(tables.recipe)
        bound = bind(self.problem, tables, server, start=agreed.start, seed=agreed.seed, disclose=agreed.disclose)
        bound = bound.secured(self.checks_points) if self.is_secure else bound
        private = self.private(bound)
        return bound if private is None else private.traced(bound)

    def server_table(self, agreed: AgreedRecipe | None = None) -> Table | None:
        """The server's own table; where `server` is a function, only the server calls it. `agreed`: the recipe, fitted."""
        rows = self._server() if callable(self._server) else self._server
        return None if rows is None else self._table(rows, "the server", agreed)

    def watch(self) -> Any:
        """What is told of the rounds where the run is led: what the pact's `watch()` gives; None where it has none."""
        return None if self._watch is None else self._watch()

    def frame(self, party: str) -> Any:
        """What `load` gives for a party. Raises ValueError where it fails."""
        try:
            return self.load(party)
        except Exception as error:
            raise ValueError(f"{self.path}: load({party!r}) fails: {type(error).__name__}: {error}") from error

    def table(self, party: str, agreed: AgreedRecipe | None = None, min_count: int = 1) -> Table:
        """The table of one party. Raises ValueError where `load` fails.

        - `agreed`: the recipe, fitted (default: none). `min_count`: as in its `transform`.
        """
        frame = self.frame(party)
        try:
            if self.recipes:
                return own_table(self.recipes[party], frame, party, self.id)
            return self._table(frame, title(party), agreed, min_count)
        except Exception as error:
            raise ValueError(f"{self.path}: load({party!r}) fails: {type(error).__name__}: {error}") from error

    def recipe_of_labels(self) -> dict[str, AgreedRecipe] | None:
        """Over columns the first active party's recipe, fitted, where its rows are on this machine; None where there is none."""
        if not self.recipes or self._server is not None:
            return None
        return {self.active[0]: self.table(self.active[0]).recipe}

    def _table(self, rows: Any, owner: str, agreed: AgreedRecipe | None, min_count: int = 1) -> Table:
        return as_table(rows) if agreed is None else prepared(agreed, raw_frame(rows), owner, min_count)

    def tables(self, *, blinded: bool = True) -> Parties | ColumnParties:
        """The tables of all parties, loaded in this process. Where the pact has `align`, their rows in common: found by private
        matching, or, with `blinded` False, by comparing the ids, which is faster and gives the same."""
        if self.recipe is not None:
            return prepare(self.recipe, {party: self.frame(party) for party in self.parties})
        loaded: Mapping[str, Table] = {party: self.table(party) for party in self.parties}
        if self.align is not None:
            loaded = self.matched = match(loaded, self.align) if blinded else align(loaded, self.align)
        return split_columns(loaded, active=self.active, id=self.id) if self.columns else split_rows(loaded)

    def run(self, parties: Parties | ColumnParties, **options: Any) -> Result | Promise:
        """Solve in this process, test and evaluate where the pact says so; `options` override those of the pact."""
        server: dict[str, Any] = {} if self.columns else {"server": self.server_table(parties.recipe)}
        stated = {**server, "watch": self.watch(), **self.options, **options}
        if options.get("engine") is None and "privacy" not in options:  # a mesh adds up in the clear
            stated["privacy"] = self.secure_sums or self.privacy
        stated.pop("largest_reply", None)  # of parties elsewhere
        if self.promise is None:
            return self._evaluated(solve(self.problem, parties, self.algorithm, **stated), parties, options.get("save"))
        promise = promised(self.promise, parties, self.algorithm, **stated)
        trained_on = {name: self.promise.drawn(name, parties[name])[0] for name in parties.names}
        return dataclasses.replace(promise, result=self._evaluated(promise.result, trained_on, options.get("save")))

    def _evaluated(self, result: Result, tables: Any, folder: Any) -> Result:
        """The result with its evaluation, where the pact has `evaluate`, which is saved in the folder of the run."""
        if self.evaluate is None:
            return result
        evaluation = evaluate(result, tables, **self.evaluate)
        evaluation = evaluation.summed() if self.hides_counts else evaluation
        if folder is not None:
            evaluation.save(pathlib.Path(folder) / EVALUATION)
        return dataclasses.replace(result, evaluation=evaluation)
