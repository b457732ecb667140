"""What holds for every method in every setting that it declares: a line in RUNS, and a new one is held to it too.

Two suites hold it to more: tests/test_deploy.py and tests/test_flare.py to the bytes between organisations (a line in
tests/pacts.py), tests/test_exact_methods.py to what only exact methods give.
"""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import pathlib
import re
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import columns
import jax
import jax.numpy as jnp
import numpy as np
import pacts
import pytest
from problems import classes

import fedpact as fp
from fedpact.algorithms.averaging.robust import RobustAverage
from fedpact.algorithms.prox_al.tolerances import Tolerances
from fedpact.engines.exchanges import ExchangePlan
from fedpact.federation.setting import Setting
from fedpact.protocol import HostNetwork, Reply, combine
from fedpact.protocol.algorithm import Method, Split
from fedpact.protocol.messages import size_in_bytes
from fedpact.protocol.phases import Ask, Phase, as_sent
from fedpact.run import drivers
from fedpact.run.fingerprint import digest
from fedpact.run.pact import Pact
from fedpact.run.selection import protected
from fedpact.settings import bind
from fedpact.settings.base import Bound
from fedpact.settings.columns import ColumnsBound
from fedpact.settings.personal import PersonalBound
from fedpact.settings.rows import RowsBound

# problems


@dataclasses.dataclass(frozen=True)
class Stated:
    """A problem over its parties."""

    problem: fp.Problem
    parties: Any
    split: Split


LOSS = fp.logistic_loss(fp.linear())
ONES, ZEROS = (fp.mean(LOSS, where=fp.col("y") == label) for label in (1, 0))
PARTIES = fp.split_rows(classes(0, (12, 12, 12)))
UNEVEN = fp.split_rows(classes(0, (12, 30, 12)))  # in two buckets, the first and the last in one: slower to compile
COLUMNS = fp.split_columns(columns.TABLE, {"shop": [0, 1], "bank": [2], "network": [3, 4]}, active=["bank"])
SETS = fp.Personal([fp.sets.l2_ball(radius) for radius in (0.1, 0.2, 0.3)], pull=[0.1, 0.2, 0.3])
CONCAT = fp.split_model(bottom=lambda width: fp.mlp([width, 2]), combine="concat", top=fp.linear())
LIMITS = {
    "party": (ONES <= 0.69).named("of each"),
    "pooled": (ZEROS.pooled() <= 0.68).named("over all rows"),
    "server": (fp.value(fp.squared_norm) <= 0.3).at_server().named("of the server"),
}


def over_rows(*scopes: str, parties: fp.Parties = PARTIES) -> Stated:
    limits = [LIMITS[scope] for scope in scopes]
    return Stated(fp.minimize(fp.mean(LOSS), limits, fp.l2(0.01)), parties, "rows")


def over_columns(*scopes: str, loss: Any = columns.LOSS) -> Stated:
    """Over columns every mean is over all rows."""
    gap = (fp.equal_opportunity_gap(loss, group="sex") <= 0.02).named("over all rows")
    return Stated(fp.minimize(fp.mean(loss), [gap for _ in scopes], fp.l2(0.01)), COLUMNS, "columns")


TOO_TIGHT = Stated(
    fp.minimize(fp.mean(LOSS), [(ONES <= 0.2).named("ones"), (ZEROS <= 0.2).named("zeros")]), PARTIES, "rows"
)
FREE, FREE_COLUMNS, FAIR = over_rows(), over_columns(), over_columns("pooled")
NEURAL = over_columns("pooled", loss=fp.logistic_loss(CONCAT, labels=(-1, 1)))
PERSONAL, UNEVEN_PERSONAL = (
    Stated(fp.minimize(fp.mean(LOSS), personal=SETS), parties, "personal") for parties in (PARTIES, UNEVEN)
)
DECIDED, DECIDED_COLUMNS = (fp.decisions(loss.model) for loss in (LOSS, columns.LOSS))
COUNTED = Stated(
    fp.minimize(
        fp.mean(LOSS),
        [
            (fp.mean(DECIDED, where=fp.col("y") == 1) >= 0.5).named("found"),
            (fp.mean(DECIDED).pooled() <= 0.6).named("chosen"),
        ],
        fp.l2(0.01),
    ),
    PARTIES,
    "rows",
)
COUNTED_COLUMNS = Stated(
    fp.minimize(
        fp.mean(columns.LOSS),
        [(fp.demographic_parity_gap(DECIDED_COLUMNS, group="sex") <= 0.15).named("gap")],
        fp.l2(0.01),
    ),
    COLUMNS,
    "columns",
)
PLAIN: dict[Split, Stated] = {"rows": FREE, "columns": FREE_COLUMNS, "personal": PERSONAL}

# methods


@dataclasses.dataclass(frozen=True)
class Run:
    """`within`: how far two runs may be apart that are alike to rounding; `noisy`: they are never alike to the bit."""

    stated: Stated
    method: fp.Algorithm
    options: dict[str, Any]
    within: float = 1e-10
    noisy: bool = False

    def solve(self, **options: Any) -> fp.Result:
        return fp.solve(self.stated.problem, self.stated.parties, self.method, **{**self.options, **options})

    def bound(self) -> tuple[Bound, Method]:
        given = {name: self.options[name] for name in ("seed", "disclose") if name in self.options}
        bound = bind(self.stated.problem, self.stated.parties, **given)
        return bound, protected(self.method, self.options.get("privacy")).bind(bound.setting)


def exact(stated: Stated, method: fp.Algorithm, **options: Any) -> Run:
    """To the end."""
    return Run(stated, method, {"tolerance": 1e-5, **options})


def some(stated: Stated, method: fp.Algorithm, **options: Any) -> Run:
    """A few rounds."""
    return Run(stated, method, {"tolerance": 1e-9, "max_rounds": 7, "seed": 3, **options})


LOCAL: Any = {"step": 0.1, "local_steps": 3}
RUNS: dict[str, Run] = {
    "InteriorPoint": exact(over_rows("party", "pooled"), fp.InteriorPoint()),
    "ProxAL Newton": exact(over_rows("party", "server", parties=UNEVEN), fp.ProxAL(fp.Newton())),
    "ProxAL LBFGS": some(over_rows("pooled"), fp.ProxAL(fp.LBFGS()), disclose=False),
    "ProxAL ADMM": some(over_rows("party"), fp.ProxAL(fp.ADMM())),
    "ProxAL as printed": some(over_rows("pooled"), fp.ProxAL.as_printed(rho=3.0)),
    "CentralProxAL, infeasible": exact(TOO_TIGHT, fp.CentralProxAL()),
    "PrimalDual": exact(over_rows("pooled", parties=UNEVEN), fp.PrimalDual(), tolerance=1e-4),
    "SSCA": some(over_rows("pooled"), fp.SSCA(batch=5, participation=0.67, measure=3)),
    "SSCA columns": some(NEURAL, fp.SSCA(batch=10, measure=3, wire="float32")),
    "FedSGD": some(over_rows(parties=UNEVEN), fp.FedSGD(batch=5, step=0.1, momentum=0.5, participation=0.67)),
    "FedSGD columns": some(FREE_COLUMNS, fp.FedSGD(batch=10, step=fp.Decay(0.2, 0.5), momentum=0.5)),
    "FedAvg": some(FREE, fp.FedAvg(batch=5, momentum=0.5, **LOCAL)),
    "FedAvg personal": some(PERSONAL, fp.FedAvg(penalty=2.0, participation=0.67, **LOCAL), disclose=False),
    "FedProx": some(over_rows(parties=UNEVEN), fp.FedProx(0.1, participation=0.67, **LOCAL)),
    "FedProx personal": some(PERSONAL, fp.FedProx(0.1, batch=5, penalty=2.0, **LOCAL)),
    "SCAFFOLD": some(FREE, fp.SCAFFOLD(batch=5, participation=0.67, **LOCAL)),
    "SCAFFOLD personal": some(PERSONAL, fp.SCAFFOLD(batch=5, penalty=2.0, server_step=0.5, **LOCAL)),
    "FairVFL": exact(FAIR, fp.FairVFL()),
    "FairVFL neural": some(NEURAL, fp.FairVFL(local_steps=3, pace="random")),
    "FairVFL as printed": some(FAIR, fp.FairVFL.as_printed()),
    "FairVFL encrypted": dataclasses.replace(
        some(FAIR, fp.FairVFL(), max_rounds=4, privacy=fp.EncryptedResiduals()), within=1e-6, noisy=True
    ),
    "FedBCD": some(FREE_COLUMNS, fp.FedBCD(local_steps=3, step=0.2)),
    "InteriorPoint counting": exact(COUNTED, fp.InteriorPoint()),
    "FairVFL counting": dataclasses.replace(exact(COUNTED_COLUMNS, fp.FairVFL(), tolerance=1e-4), within=1e-6),
    "PCFedAvg": some(PERSONAL, fp.PCFedAvg(0.05, 3, fp.Growth(1.0, 0.25), batch=5, participation=0.67)),
    "PersonalProjected": exact(UNEVEN_PERSONAL, fp.PersonalProjected()),
}


@pytest.fixture(scope="module", params=RUNS)
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a run. Its tests come one after the other, and then its programs go: each holds many mappings of memory."""
    yield request.param
    drivers.forget()


def exported(*kinds: type) -> list[type]:
    """Classes of these kinds that fp has and that can be made."""
    members = [getattr(fp, name) for name in fp.__all__]
    return [x for x in members if inspect.isclass(x) and issubclass(x, kinds) and not inspect.isabstract(x)]


METHODS: list[type[fp.Algorithm]] = exported(fp.Algorithm)
every_method = pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
DECLARED = {(kind, split) for kind in METHODS for split in kind.supports}


def test_every_method_is_here_in_every_setting() -> None:
    assert {(type(run.method), run.stated.split) for run in RUNS.values()} == DECLARED
    solvers = {type(run.method.inner) for run in RUNS.values() if isinstance(run.method, fp.ProxAL)}
    assert solvers >= set(exported(fp.Inner))


def test_every_method_is_deployed_in_every_setting(tmp_path: pathlib.Path) -> None:
    splits: dict[type[Bound], Split] = {RowsBound: "rows", ColumnsBound: "columns", PersonalBound: "personal"}
    read = [Pact(pacts.written(tmp_path, name)) for name in pacts.PACTS]
    deployed = {(type(pact.algorithm), splits[pact.setting]) for pact in read}
    assert {(kind.__name__, split) for kind, split in DECLARED - deployed} == set()


# one run in several ways


@functools.cache
def whole(name: str) -> tuple[pathlib.Path, fp.Result]:
    """The uninterrupted run, and where it is saved."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "run"
    return folder, RUNS[name].solve(save=folder)


def assert_alike(name: str, other: fp.Result) -> None:
    """As the uninterrupted run, to rounding."""
    run, (_, first) = RUNS[name], whole(name)
    assert (other.status, other.rounds, other.parties) == (first.status, first.rounds, first.parties)
    for cost in ("exchanges", "bytes_up", "bytes_down"):
        assert getattr(other, cost) == getattr(first, cost) > 0, cost
    ours, theirs = ((r.params, r.average, r.unprojected, r.moved) for r in (first, other))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=0, atol=run.within), ours, theirs)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=10 * run.within)
    if len(other.history):  # the fused driver has none
        assert other.history.columns == first.history.columns
        for column in first.history:
            close(other.history[column], first.history[column], err_msg=column)
    jax.tree.map(close, numbers_of(other.certificate), numbers_of(first.certificate))


NUMBERS = ("stationarity", "feasibility", "complementarity", "objective")
MULTIPLIERS = ("party_multipliers", "server_multipliers", "pooled_multipliers")


def numbers_of(certificate: fp.Certificate) -> Any:
    """All that was measured, by holder."""
    values = [dict(zip(report.holders, report.values, strict=True)) for report in certificate.constraints]
    personal = None if certificate.personal is None else dataclasses.asdict(certificate.personal)
    return {name: getattr(certificate, name) for name in (*NUMBERS, *MULTIPLIERS)}, values, personal


def assert_same_certificate(one: fp.Certificate, other: fp.Certificate) -> None:
    for name in (*NUMBERS, "constraints", "personal"):
        assert getattr(one, name) == getattr(other, name), name
    for name in MULTIPLIERS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def assert_uninterrupted(name: str, folder: pathlib.Path, other: fp.Result) -> None:
    """As the uninterrupted run, to the bit where there is no noise: result, history, certificate and what is saved of the
    answer, with every party's block."""
    first_folder, first = whole(name)
    assert other.history.columns == first.history.columns
    np.testing.assert_array_equal(other.history["round"], first.history["round"])
    if RUNS[name].noisy:
        assert_alike(name, other)
        np.testing.assert_allclose(other.history["objective"], first.history["objective"], rtol=0, atol=1e-6)
        return
    assert (other.status, other.message, other.rounds) == (first.status, first.message, first.rounds)
    assert (other.exchanges, other.bytes_up, other.bytes_down) == (first.exchanges, first.bytes_up, first.bytes_down)
    for column in first.history:
        np.testing.assert_array_equal(other.history[column], first.history[column], err_msg=column)
    ours, theirs = ((r.params, r.average, r.unprojected, r.moved) for r in (first, other))
    assert jax.tree.all(jax.tree.map(np.array_equal, ours, theirs))
    assert_same_certificate(other.certificate, first.certificate)
    with np.load(first_folder / "answer.npz") as one, np.load(folder / "answer.npz") as two:
        assert one.files == two.files
        assert all(np.array_equal(one[array], two[array]) for array in one.files)


def test_resumed_is_uninterrupted(name: str, tmp_path: pathlib.Path) -> None:
    run, (_, uninterrupted) = RUNS[name], whole(name)
    rounds, history = uninterrupted.rounds, uninterrupted.history
    cuts = {1, 2, rounds // 2, rounds - 1}
    if "outer" in history:  # of subproblems: within one, and between two
        ends = np.flatnonzero(np.diff(history["outer"])) + 1
        cuts |= {int(cut) for cut in (*ends[-1:], *ends[-1:] + 1) if cut < rounds}
    for cut in sorted(cuts):
        part = run.solve(save=tmp_path, resume=True, max_rounds=cut)
        ended = "converged" if part.certificate.holds(part.tolerance) else "max_rounds"
        assert (part.status, part.rounds) == (ended, cut)
    assert_uninterrupted(name, tmp_path, run.solve(save=tmp_path, resume=True))


def test_ctrl_c_leaves_a_run_that_goes_on(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = RUNS[name], whole(name)
    monkeypatch.setattr("fedpact.run.loop.Run.rounds_per_call", lambda run: 3)
    monkeypatch.setattr("fedpact.run.drivers.CALL_SECONDS", 600.0)  # three rounds, however slow the machine is

    def interrupt(history: fp.History) -> None:
        assert len(history) == 3
        raise KeyboardInterrupt

    stopped = run.solve(save=tmp_path, watch=interrupt)
    assert (stopped.status, stopped.rounds, len(stopped.history)) == ("stopped", 3, 3)
    assert "stopped by hand" in stopped.message
    assert_uninterrupted(name, tmp_path, run.solve(save=tmp_path, resume=True))


@pytest.mark.parametrize("driver", ["fused", "stepwise"])
def test_drivers_agree(name: str, driver: Any) -> None:
    found = RUNS[name].solve(driver=driver)
    assert len(found.history) == (0 if driver == "fused" else found.rounds)
    assert_alike(name, found)


class Loop(HostNetwork):
    """Parties one after the other; what passes is kept, with its bytes up and down."""

    def __init__(self, bound: Bound):
        self.bound = bound
        self.own = {name: bound.own_data(name) for name in bound.names}
        self.compiled: dict[Any, Any] = {}
        self.passed: list[tuple[Ask, int, int]] = []

    def exchange(self, asks: Sequence[Ask], states: Any) -> tuple[list[Reply], Any]:
        held = dict.fromkeys(self.own) if states is None else self.bound.by_name(states)
        replies = []
        for ask in asks:
            step = self.compiled.setdefault(ask.step, jax.jit(ask.step))
            asked = [n for n, own in self.own.items() if ask.among is None or own.active == (ask.among == "active")]
            if ask.drawn is not None:
                asked = [self.bound.names[place] for place in ask.drawn]
            sent = []
            for name in asked:
                held[name], reply = step(self.own[name], held[name], ask.message)
                sent.append(reply)
            self.passed.append((ask, sum(map(size_in_bytes, sent)), len(asked) * size_in_bytes(ask.message)))
            combined = combine(jax.tree.map(lambda *leaves: np.stack(leaves), *sent))
            if ask.drawn is not None:
                combined = dataclasses.replace(
                    combined, per_party=jax.tree.map(self.spread(ask.drawn), combined.per_party)
                )
            replies.append(combined)
        return replies, self.bound.by_bucket(list(held.values()))

    def spread(self, drawn: Any) -> Any:
        """From an entry for each party that was asked to one for each party, NaN for the others."""

        def to_all(leaf: Any) -> np.ndarray:
            every = np.full((len(self.own), *leaf.shape[1:]), np.nan)
            every[np.asarray(drawn)] = leaf
            return every

        return to_all


class OnHost:
    """An engine that is called on the host."""

    def connect(self, bound: Bound) -> tuple[Bound, Loop]:
        self.network = Loop(bound)
        return bound, self.network


@functools.cache
def on_host(name: str) -> tuple[list[tuple[Ask, int, int]], fp.Result]:
    """The run on the host, and what passed."""
    engine = OnHost()
    result = RUNS[name].solve(engine=engine)
    return engine.network.passed, result


def test_an_engine_on_the_host_agrees(name: str) -> None:
    assert_alike(name, on_host(name)[1])


def test_a_mesh_agrees(name: str) -> None:
    assert_alike(name, RUNS[name].solve(engine=fp.Mesh()))


def test_verify_measures_the_same_certificate(name: str) -> None:
    folder, result = whole(name)
    stated = RUNS[name].stated
    check = fp.verify(folder, stated.problem, stated.parties)
    assert check.ok == result.converged
    assert check.tolerance == result.tolerance
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-13)  # units are found by another program
    jax.tree.map(close, numbers_of(check.certificate), numbers_of(result.certificate))
    assert check.claimed == {number: getattr(result.certificate, number) for number in check.claimed}


def test_runs_end_in_several_ways() -> None:
    assert {whole(name)[1].status for name in RUNS} == {"converged", "max_rounds", "infeasible"}


# what is recorded


def test_history_has_one_line_per_round(name: str) -> None:
    _, result = whole(name)
    history = result.history
    np.testing.assert_array_equal(history["round"], np.arange(1, result.rounds + 1))
    assert all(len(column) == result.rounds for column in history.values())
    for cost in ("exchanges", "bytes_up", "bytes_down"):
        assert getattr(result, cost) == history[cost].sum() >= result.rounds
    for number in ("objective", "violation", "stationarity"):
        assert np.isfinite(history[number]).all()


def phases_of(method: Method) -> list[Phase]:
    """Of a round, one after the other."""
    return list(itertools.chain.from_iterable(p if isinstance(p, tuple) else (p,) for p in method.round))


def test_bytes_are_those_that_pass_and_those_of_the_plan(name: str) -> None:
    """Of every exchange; and of rounds, in which optional phases count where they took place."""
    bound, method = RUNS[name].bound()
    plan, (passed, found), (_, first) = ExchangePlan.of(method, bound), on_host(name), whole(name)
    in_rounds = []
    for ask, up, down in passed:
        exchange = plan.of_ask(ask)
        assert exchange.asked == (bound.server_data.count(ask.among) if ask.drawn is None else len(ask.drawn))
        assert up == exchange.asked * exchange.reply.size
        assert down == exchange.asked * exchange.message.size
        if exchange.part == "round":
            in_rounds.append((ask.step, up, down))
    assert len(in_rounds) == found.exchanges
    always = [as_sent(phase.step) for phase in phases_of(method) if phase.only_if is None]
    ends = np.cumsum(first.history["exchanges"])
    for place, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        steps, up, down = zip(*in_rounds[start:end], strict=True)
        assert [step for step in steps if step in always] == always
        assert (sum(up), sum(down)) == (first.history["bytes_up"][place], first.history["bytes_down"][place])


@pytest.mark.parametrize("name", ["SSCA", "SSCA columns"])
def test_optional_phases_are_counted_where_they_took_place(name: str) -> None:
    """All rows are measured in the first round and every third one."""
    history, phases = whole(name)[1].history, phases_of(RUNS[name].bound()[1])
    always = sum(phase.only_if is None for phase in phases)
    assert always < len(phases)
    measured = history["round"] % 3 == 1
    np.testing.assert_array_equal(history["exchanges"], always + measured)
    sent = history["bytes_up"] + history["bytes_down"]
    (plain,), (more,) = set(sent[~measured]), set(sent[measured])
    assert more > plain


# capabilities

EXAMPLES: dict[type[fp.Algorithm], fp.Algorithm] = {type(run.method): run.method for run in reversed(RUNS.values())}


@functools.cache
def setting_of(split: Split, time: int = 1) -> Setting:
    """A setting without constraints, made anew for another `time`."""
    del time
    return bind(PLAIN[split].problem, PLAIN[split].parties).setting


@every_method
@pytest.mark.parametrize("split", PLAIN)
def test_settings_are_those_declared(kind: type[fp.Algorithm], split: Split) -> None:
    """Where a method is refused, those that are named instead are none that would be refused as well."""
    setting = setting_of(split)
    assert setting.split == split
    if split in kind.supports:
        assert isinstance(EXAMPLES[kind].bind(setting), Method)
        return
    with pytest.raises(ValueError, match=rf"^{kind.__name__} is for ") as refused:
        EXAMPLES[kind].bind(setting)
    _, instead = str(refused.value).split("; ")
    named = [getattr(fp, name) for name in re.findall(r"fp\.(\w+)", instead)]
    assert named
    assert all(split in other.supports for other in named)


@every_method
@pytest.mark.parametrize("scope", LIMITS)
def test_scopes_of_constraints_are_those_declared(kind: type[fp.Algorithm], scope: Any) -> None:
    """With personal sets no problem has constraints; over columns all of them are over all rows."""
    stated = {"rows": over_rows(scope), "columns": over_columns(scope)}
    for split in kind.supports & stated.keys():
        limited, over = stated[split], "pooled" if split == "columns" else scope
        setting = bind(limited.problem, limited.parties).setting
        assert [held for _, held in setting.constraints] == [over]
        if over in kind.keeps:
            assert isinstance(EXAMPLES[kind].bind(setting), Method)
            continue
        with pytest.raises(ValueError, match=repr(LIMITS[over].name)) as refused:
            fp.solve(limited.problem, limited.parties, EXAMPLES[kind])
        assert re.search(rf"\b{kind.__name__} keeps ", str(refused.value))


def test_rows_behind_a_mean_are_the_batch(name: str) -> None:
    method = RUNS[name].method
    assert method.rows_per_mean == getattr(method, "batch", None)


def test_params_are_keyed_by_party_where_they_are_the_partys(name: str) -> None:
    """Models of their own where the method declares it; over columns, blocks of one model."""
    run, (_, result) = RUNS[name], whole(name)
    assert run.method.personal_models == run.bound()[1].personal_models
    own = run.method.personal_models or run.stated.split == "columns"
    assert (set(result.parties) <= result.params.keys()) == own
    assert (result.unprojected is not None) == run.method.personal_models


@every_method
def test_residuals_are_protected_where_they_are_sent(kind: type[fp.Algorithm]) -> None:
    method, privacy = EXAMPLES[kind], fp.EncryptedResiduals()
    if kind.sends_residuals:
        assert typing.cast(Any, protected(method, privacy)).privacy == privacy
        return
    with pytest.raises(ValueError, match=rf"protects .*, not {kind.__name__}"):
        protected(method, privacy)


# options

WITH_OPTIONS = exported(fp.Algorithm, fp.Inner, fp.Schedule, fp.Clock, Tolerances)


def made(kind: Any) -> Any:
    """One of this class, that can run in the setting that has most options."""
    if kind in EXAMPLES:
        return EXAMPLES[kind]
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    return kind(**{f.name: 0.5 for f in dataclasses.fields(kind) if (f.default, f.default_factory) == missing})


def types_of(kind: type, option: str) -> tuple[Any, ...]:
    """The types that an option may have."""
    hint = typing.get_type_hints(kind)[option]
    return (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )


def words_in(kinds: Sequence[Any]) -> tuple[Any, ...]:
    """Of a literal option."""
    return tuple(
        itertools.chain.from_iterable(typing.get_args(k) for k in kinds if typing.get_origin(k) is typing.Literal)
    )


def wrong_for(kinds: Sequence[Any]) -> Iterator[Any]:
    """Nothing of it is right; every number has a range without -1."""
    yield "no such word"
    yield object()
    if types.NoneType not in kinds:
        yield None
    if bool not in kinds:
        yield True
    if words_in(kinds) or bool in kinds:
        yield 3
    if int in kinds or float in kinds:
        yield from (-1, -0.5, np.nan, np.inf)
        if not any(typing.get_origin(kind) in (tuple, Sequence) for kind in kinds):
            yield [1.0]
    if int in kinds and float not in kinds:
        yield 2.5


every_option = pytest.mark.parametrize(
    ("kind", "option"),
    [pytest.param(k, f.name, id=f"{k.__name__} {f.name}") for k in WITH_OPTIONS for f in dataclasses.fields(k)],
)


@every_option
def test_options_are_checked(kind: type, option: str) -> None:
    given = made(kind)
    for wrong in wrong_for(types_of(kind, option)):
        with pytest.raises((ValueError, TypeError), match=rf"^{kind.__name__}\({option}="):
            dataclasses.replace(given, **{option: wrong})


def changed(given: fp.Algorithm, option: str, setting: Setting) -> Method:
    """The method with another value of this option."""
    value, kinds = getattr(given, option), types_of(type(given), option)
    objects = {
        RobustAverage: fp.TrimmedMean(0.4),
        fp.Inner: fp.LBFGS(3),
        Tolerances: fp.InverseSquare(),
        fp.Clock: fp.Clock(latency=2.0),
        fp.EncryptedResiduals: fp.EncryptedResiduals(),
        Mapping[str, fp.Surrogate]: {"objective": fp.Surrogate(jnp.add, jnp.vdot)},
    }
    found = [*words_in(kinds), *(objects[kind] for kind in kinds if kind in objects)]
    if bool in kinds:
        found.append(not value)
    if int in kinds or float in kinds:
        found += [4] if float not in kinds else [0.25, 1.5, 2e9]
    for other in found:
        if other != value:
            with contextlib.suppress(ValueError):  # out of this option's range
                return dataclasses.replace(given, **{option: other}).bind(setting)
    raise AssertionError(f"no other value of {option} is known here")


@pytest.mark.parametrize(
    ("kind", "option"),
    [pytest.param(k, f.name, id=f"{k.__name__} {f.name}") for k in METHODS for f in dataclasses.fields(k)],
)
def test_methods_are_equal_where_their_options_are(kind: type[fp.Algorithm], option: str) -> None:
    """Equal ones find their compiled programs and saved runs again, and no others'."""
    given = EXAMPLES[kind]
    split: Split = "personal" if "personal" in kind.supports else min(kind.supports)
    if option == "surrogates":
        split = "rows"
    if option == "average" and hasattr(given, "participation"):  # for one model over rows, of three parties that answer
        given, split = dataclasses.replace(given, participation=1.0), "rows"
    one, same = (dataclasses.replace(given).bind(setting_of(split, time)) for time in (1, 2))
    assert one is not same
    assert one == same
    assert hash(one) == hash(same)
    assert digest(one) == digest(same)
    other = changed(given, option, setting_of(split))
    assert one != other
    assert digest(one) != digest(other)
