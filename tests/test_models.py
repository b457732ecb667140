"""Models and losses: against plain NumPy, slopes against finite differences, in double precision wherever they run."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpact as fp
from fedpact.problem.losses import Loss
from fedpact.problem.models import EquinoxModel, Model
from fedpact.problem.symmetric import OuterProducts, SymmetricSum
from fedpact.protocol.messages import Reply, alone, combine
from fedpact.settings import bind

RNG = np.random.default_rng(5)
X = RNG.normal(size=(7, 3))
KEY = jax.random.key(1)

# models


def test_linear_scores():
    w, b = RNG.normal(size=3), 0.3
    assert jax.tree.map(np.shape, fp.linear(bias=True).init(KEY, {"x": X})) == {"w": (3,), "b": ()}
    np.testing.assert_allclose(fp.linear(bias=True).apply({"w": w, "b": b}, {"x": X}), X @ w + b, rtol=1e-14)
    np.testing.assert_allclose(fp.linear(inputs="z").apply({"w": w}, {"z": X}), X @ w, rtol=1e-14)


def test_linear_scores_with_several_outputs():
    model = fp.linear(bias=True, outputs=4)
    assert jax.tree.map(np.shape, model.init(KEY, {"x": X})) == {"w": (3, 4), "b": (4,)}
    w, b = RNG.normal(size=(3, 4)), RNG.normal(size=4)
    np.testing.assert_allclose(model.apply({"w": w, "b": b}, {"x": X}), X @ w + b, rtol=1e-14)


def test_linear_reads_numbers_and_pictures_alike():
    assert fp.linear().init(KEY, {"x": np.arange(7)})["w"].shape == (1,)
    assert fp.linear().init(KEY, {"x": np.zeros((7, 2, 3))})["w"].shape == (6,)
    np.testing.assert_allclose(fp.linear().apply({"w": np.array([0.5])}, {"x": np.arange(7)}), np.arange(7) / 2)
    picture, w = RNG.normal(size=(7, 2, 3)), RNG.normal(size=6)
    np.testing.assert_allclose(fp.linear().apply({"w": w}, {"x": picture}), picture.reshape(7, 6) @ w, rtol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 4])
def test_mlp_scores(bias: bool, outputs: int):
    model = fp.mlp([3, 5, outputs], activation=jax.nn.relu, bias=bias)
    params = model.init(KEY, {"x": X})
    shapes = {"w1": (3, 5), "w2": (5, outputs)} | ({"b1": (5,), "b2": (outputs,)} if bias else {})
    assert jax.tree.map(np.shape, params) == shapes
    p = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    hidden = np.maximum(X @ p["w1"] + p.get("b1", 0), 0)
    scores = hidden @ p["w2"] + p.get("b2", 0)
    np.testing.assert_allclose(model.apply(p, {"x": X}), scores[:, 0] if outputs == 1 else scores, rtol=1e-12)


def test_mlp_starts_as_glorot_draws():
    params = fp.mlp([3, 500, 2]).init(KEY, {"x": X})
    assert params["w1"].dtype == np.float64
    for name, fans in (("w1", 503), ("w2", 502)):
        reach = np.sqrt(6 / fans)
        assert 0.95 * reach < np.abs(params[name]).max() <= reach
    assert not params["b1"].any()
    again, other = (fp.mlp([3, 500, 2]).init(key, {"x": X}) for key in (KEY, jax.random.key(2)))
    assert (params["w1"] == again["w1"]).all()
    assert (params["w1"] != other["w1"]).any()


def test_mlp_default_activation_is_tanh():
    p = {"w1": RNG.normal(size=(3, 4)), "w2": RNG.normal(size=(4, 1))}
    np.testing.assert_allclose(
        fp.mlp([3, 4, 1], bias=False).apply(p, {"x": X}), (np.tanh(X @ p["w1"]) @ p["w2"])[:, 0], rtol=1e-12
    )


def test_a_model_of_two_functions():
    model = fp.model(lambda key, features: {"a": jax.random.normal(key, (features,))}, lambda p, x: jnp.exp(x @ p["a"]))
    params = model.init(KEY, {"x": X})
    assert params["a"].shape == (3,)
    np.testing.assert_allclose(model.apply(params, {"x": X}), np.exp(X @ np.asarray(params["a"])), rtol=1e-12)


class Scaled(eqx.Module):
    """Leaves of every kind: trained arrays, a number, whole numbers, a function."""

    layer: eqx.nn.Linear
    order: jax.Array
    factor: float
    bend: Callable[[jax.Array], jax.Array]

    def __call__(self, row: jax.Array) -> jax.Array:
        return self.factor * self.bend(self.layer(row[self.order]))


def scaled(key: jax.Array) -> Scaled:
    return Scaled(eqx.nn.Linear(3, 1, key=key), jnp.array([2, 0, 1]), 2.5, jnp.sin)


def network(key: jax.Array) -> eqx.nn.MLP:
    return eqx.nn.MLP(3, "scalar", 4, 1, key=key)


@pytest.mark.parametrize("make", [scaled, network])
def test_an_equinox_module_gives_its_own_scores(make: Callable[[jax.Array], Any]):
    model = fp.equinox_model(make)
    params = model.init(KEY, {"x": X})
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(params))
    expected = np.ravel(jax.vmap(make(KEY))(X))
    scores = model.apply(params, {"x": jnp.asarray(X)})
    assert scores.shape == (7,)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    np.testing.assert_allclose(np.ravel(model.module(params)(jnp.asarray(X[0]))), expected[:1], rtol=1e-12)
    others = jax.tree.map(lambda leaf: leaf + 1.0, params)
    assert not np.allclose(model.apply(others, {"x": jnp.asarray(X)}), expected)


def test_an_equinox_network_is_trained():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    rows = fp.Table(x=x, y=(x[:, 0] * x[:, 1] > 0).astype(int))
    model = fp.equinox_model(network)
    loss = fp.logistic_loss(model)
    problem = fp.minimize(fp.mean(loss), [fp.mean(loss, where=fp.col("y") == 1) <= 0.6], regularizer=fp.l2(1e-3))
    result = fp.solve(problem, fp.split_rows(rows, 2, stratify="y"), fp.ProxAL(), max_rounds=80, progress=False)
    history = result.history["objective"]
    assert history[-1] < history[0] - 0.02
    module = model.module(result.params)
    assert isinstance(module, eqx.nn.MLP)
    np.testing.assert_allclose(result.scores(rows), jax.vmap(module)(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (fp.linear(), fp.linear(), fp.linear(bias=True)),
        (fp.mlp([3, 1]), fp.mlp((3, np.int64(1))), fp.mlp([3, 1], jax.nn.relu)),
        (fp.equinox_model(network), fp.equinox_model(network), fp.equinox_model(scaled)),
        (fp.logistic_loss(fp.linear()), fp.logistic_loss(fp.linear()), fp.logistic_loss(fp.linear(), labels=(1, 0))),
    ],
)
def test_models_and_losses_made_alike_are_one_key(one: Any, same: Any, other: Any):
    assert {one: 1}[same] == 1
    assert one != other


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (
            lambda: fp.linear(5),
            TypeError,
            r"bias=5\): True or False; how many features there are is read from the data",
        ),
        (lambda: fp.linear(outputs=0), ValueError, r"outputs=0\): at least one output, or None"),
        (lambda: fp.linear(outputs=2.5), ValueError, r"outputs=2\.5\): at least one"),
        (lambda: fp.linear(outputs="3"), ValueError, r"outputs='3'\): at least one"),
        (lambda: fp.linear(inputs=0), TypeError, "inputs=0: the name of a column"),
        (lambda: fp.mlp([3]), ValueError, r"mlp\(\[3\]\): widths are at least two positive whole numbers, input first"),
        (lambda: fp.mlp(3), ValueError, "widths are at least two"),
        (lambda: fp.mlp(["3", "1"]), ValueError, "positive whole numbers"),
        (lambda: fp.mlp([3, 0]), ValueError, "positive whole numbers"),
        (lambda: fp.mlp([3, 1], "relu"), TypeError, r"activation='relu'\): a function"),
        (lambda: fp.mlp([3, 1], inputs=None), TypeError, "inputs=None"),
        (lambda: fp.model(3, len), TypeError, r"init=3\): .* must be a function"),
        (lambda: fp.model(len, "x"), TypeError, r"apply='x'\): .* must be a function"),
        (lambda: fp.equinox_model(network(KEY)), TypeError, "a function of a key that makes a module, not a MLP"),
        (lambda: fp.equinox_model("MLP"), TypeError, "a function of a key"),
        (
            lambda: fp.logistic_loss("linear"),
            TypeError,
            r"logistic_loss takes a model such as fp\.linear\(\), not a str",
        ),
        (lambda: fp.squared_loss(fp.linear), TypeError, "squared_loss takes a model"),
        (lambda: fp.softmax_loss(fp.linear(outputs=2), label=1), TypeError, r"softmax_loss\(label=1\): the name"),
        (lambda: fp.logistic_loss(fp.linear(), labels=5), ValueError, "labels=5: two different numbers, the negative"),
        (lambda: fp.logistic_loss(fp.linear(), labels=(1, 1)), ValueError, "two different numbers"),
        (lambda: fp.logistic_loss(fp.linear(), labels=("n", "y")), ValueError, "recode strings to 0 and 1"),
        (lambda: fp.logistic_loss(fp.linear(), labels=(0, 1, 2)), ValueError, "two different numbers"),
        (lambda: fp.smoothed_hinge_loss(fp.linear(), width=0), ValueError, r"width=0\): .*positive width"),
        (lambda: fp.smoothed_hinge_loss(fp.linear(), width="1"), ValueError, "positive width"),
        (lambda: fp.smoothed_hinge_loss(fp.linear(), width=np.inf), ValueError, "positive width"),
        (lambda: fp.smoothed_hinge_loss(fp.linear(), width=np.nan), ValueError, "positive width"),
        (lambda: fp.loss("hinge", fp.linear()), TypeError, r"a function \(scores, labels\) -> \(rows,\), not 'hinge'"),
        (lambda: fp.loss(fp.linear(), len), TypeError, r"a function \(scores, labels\)"),
    ],
)
def test_models_and_losses_that_are_refused(call: Callable[[], Any], kind: type[Exception], told: str):
    with pytest.raises(kind, match=told):
        call()


# losses

SCORES = st.lists(st.floats(-8, 8, allow_subnormal=False), min_size=6, max_size=6)  # one size: compiled once
ONE = {"w": np.ones(1)}


def logistic(scores: np.ndarray, signs: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-signs * scores))


def hinge(scores: np.ndarray, signs: np.ndarray, width: float) -> np.ndarray:
    short = 1 - signs * scores
    return np.where(short <= 0, 0, np.where(short <= width, short**2 / (2 * width), short - width / 2))


@given(SCORES, st.sampled_from([(0, 1), (-1, 1), (1, 2), (1, 0), (0.5, -3.25)]), st.data())
def test_logistic_loss(scores: list[float], labels: tuple[float, float], data: st.DataObject):
    places = data.draw(st.lists(st.integers(0, 1), min_size=len(scores), max_size=len(scores)))
    rows = {"x": np.array(scores), "y": np.array(labels)[places]}
    found = fp.logistic_loss(fp.linear(), labels=labels)(ONE, rows)
    np.testing.assert_allclose(found, logistic(np.array(scores), 2 * np.array(places) - 1), rtol=1e-12, atol=1e-15)


@given(SCORES, st.floats(0.05, 3), st.data())
def test_smoothed_hinge_loss(scores: list[float], width: float, data: st.DataObject):
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=len(scores), max_size=len(scores)))
    rows = {"x": np.array(scores), "y": np.array(signs)}
    found = fp.smoothed_hinge_loss(fp.linear(), labels=(-1, 1), width=width)(ONE, rows)
    np.testing.assert_allclose(found, hinge(np.array(scores), np.array(signs), width), rtol=1e-12, atol=1e-14)


def test_smoothed_hinge_lies_within_half_its_width_below_the_hinge():
    scores = np.linspace(-2, 4, 301)
    found = np.asarray(fp.smoothed_hinge_loss(fp.linear(), width=0.5)(ONE, {"x": scores, "y": np.ones(301, int)}))
    gap = np.maximum(0, 1 - scores) - found
    assert gap.min() >= -1e-15
    assert gap.max() == pytest.approx(0.25)


@given(SCORES, SCORES, SCORES)
def test_softmax_loss(first: list[float], second: list[float], third: list[float]):
    s = np.transpose([first, second, third])
    labels = np.arange(len(s)) % 3
    found = fp.softmax_loss(fp.linear(outputs=3))({"w": np.eye(3)}, {"x": s, "y": labels})
    np.testing.assert_allclose(found, np.log(np.exp(s).sum(1)) - s[np.arange(len(s)), labels], rtol=1e-11, atol=1e-12)


@given(SCORES)
def test_squared_loss(scores: list[float]):
    s = np.array(scores)
    found = fp.squared_loss(fp.linear(), label="t")(ONE, {"x": s, "t": np.arange(len(s))})
    np.testing.assert_allclose(found, (s - np.arange(len(s))) ** 2 / 2, rtol=1e-13, atol=1e-15)


def test_squared_loss_adds_over_outputs():
    w, target = RNG.normal(size=(3, 2)), RNG.normal(size=(7, 2))
    found = fp.squared_loss(fp.linear(outputs=2))({"w": w}, {"x": X, "y": target})
    np.testing.assert_allclose(found, ((X @ w - target) ** 2).sum(1) / 2, rtol=1e-12)


def test_a_loss_of_ones_own():
    def deviance(scores: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.exp(scores) - labels * scores

    own = fp.loss(deviance, fp.linear(), label="n")
    assert own.name == "deviance"
    found = own(ONE, {"x": np.array([0.5, -1.0]), "n": np.array([2.0, 0.0])})
    np.testing.assert_allclose(found, np.exp([0.5, -1.0]) - [1.0, 0.0], rtol=1e-14)


def test_losses_of_large_scores_stay_finite():
    rows = {"x": np.array([1e4, -1e4]), "y": np.array([0, 1])}
    np.testing.assert_allclose(fp.logistic_loss(fp.linear())(ONE, rows), [1e4, 1e4])
    np.testing.assert_allclose(
        fp.softmax_loss(fp.linear(outputs=2))({"w": np.eye(2)}, {"x": np.array([[1e4, 0.0]]), "y": np.array([1])}),
        [1e4],
    )


def every_loss() -> list[Loss]:
    one, many = fp.linear(bias=True), fp.mlp([3, 2, 3])
    return [
        fp.logistic_loss(one),
        fp.smoothed_hinge_loss(one, width=0.7),
        fp.squared_loss(one, label="t"),
        fp.softmax_loss(many, label="k"),
        fp.loss(lambda s, y: jnp.log(jnp.cosh(s - y)), one, label="t"),
        fp.logistic_loss(fp.equinox_model(network)),
    ]


TABLE = fp.Table(x=X, y=[0, 1, 1, 0, 1, 0, 1], k=[0, 1, 2, 0, 1, 2, 0], t=RNG.normal(size=7), n=np.arange(7))


@pytest.mark.parametrize("loss", every_loss(), ids=lambda loss: f"{loss.name}-{type(loss.model).__name__}")
def test_slopes_and_curvatures_are_those_of_finite_differences(loss: Loss):
    """The gradient of a mean, and the Hessian that Newton's method is given, by central differences."""
    expressions = [fp.mean(loss, where=fp.col("n") < 5), fp.mean(type(loss)(**vars(loss)), where=fp.col("n") > 3)]
    problem = fp.minimize(expressions[0] + 0.5 * expressions[1] + 0.1 * fp.value(fp.squared_norm))
    bound = bind(problem, [TABLE])
    own = jax.tree.map(lambda leaf: leaf[0], bound.stacks[0])
    w = bound.start + 0.3 * jnp.asarray(RNG.normal(size=bound.start.size))

    @jax.jit
    def measured(points: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        values, gradients = jax.vmap(jax.value_and_grad(lambda v: own(v).objective))(points)
        weights = jax.tree.map(jnp.ones_like, own(points[0]))
        return values, gradients, own.curvature(points[0], weights).matrix()

    steps = 1e-5 * np.eye(w.size)
    values, gradients, curvature = measured(jnp.concatenate([w[None], w + steps, w - steps]))
    (ahead, behind), (uphill, downhill) = np.split(values[1:], 2), np.split(gradients[1:], 2)
    np.testing.assert_allclose(gradients[0], (ahead - behind) / 2e-5, atol=1e-8)
    np.testing.assert_allclose(curvature, (uphill - downhill) / 2e-5, atol=1e-7)


@pytest.mark.parametrize(
    "labels", [TABLE["y"], TABLE["y"].astype(bool), TABLE["y"].astype(float), TABLE["y"].astype("i1")]
)
def test_labels_may_be_whole_numbers_floats_or_truth_values(labels: np.ndarray):
    expected = logistic(X @ np.ones(3), 2.0 * TABLE["y"] - 1)
    rows = {"x": X, "y": labels}
    np.testing.assert_allclose(fp.logistic_loss(fp.linear())({"w": np.ones(3)}, rows), expected, rtol=1e-12)
    squares = fp.squared_loss(fp.linear())({"w": np.ones(3)}, rows)
    np.testing.assert_allclose(squares, (X @ np.ones(3) - TABLE["y"]) ** 2 / 2, rtol=1e-12)
    softmax = fp.softmax_loss(fp.linear(outputs=2))({"w": np.outer(np.ones(3), [0, 1])}, rows)
    np.testing.assert_allclose(softmax, expected, rtol=1e-12)
    problem = fp.minimize(fp.mean(fp.squared_loss(fp.linear())), [fp.mean(fp.logistic_loss(fp.linear())) <= 1])
    bound = bind(problem, [rows], start={"w": np.ones(3)})
    own = jax.tree.map(lambda leaf: leaf[0], bound.stacks[0])
    found = jax.jit(lambda w: own(w))(bound.start)
    np.testing.assert_allclose(found.objective, squares.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.constraints, [expected.mean() - 1], rtol=1e-12)


def test_a_row_wise_function_may_give_whole_numbers():
    bound = bind(
        fp.minimize(fp.value(fp.squared_norm), [fp.mean(lambda w, rows: rows["n"]) <= 1]), [TABLE], start=np.ones(2)
    )
    own = jax.tree.map(lambda leaf: leaf[0], bound.stacks[0])
    np.testing.assert_allclose(own(bound.start).constraints, [2.0])


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (fp.squared_loss(fp.linear(outputs=1)), r"scores have shape \(7, 1\), the labels \(7,\); they should be alike"),
        (fp.logistic_loss(fp.linear(outputs=1)), r"shape \(7, 1\), the labels \(7,\).*a model without outputs="),
        (fp.smoothed_hinge_loss(fp.linear(outputs=2)), r"shape \(7, 2\), the labels \(7,\).*a model without outputs="),
        (fp.softmax_loss(fp.linear()), r"shape \(7,\), the labels \(7,\).*a model with outputs="),
        (fp.squared_loss(fp.linear(), label="x"), r"the labels \(7, 3\)"),
        (fp.logistic_loss(fp.model(lambda k, d: np.ones(d), lambda p, x: (x @ p).sum())), r"shape \(\) on 7 rows"),
    ],
)
def test_scores_and_labels_have_to_fit(loss: Loss, told: str):
    params = loss.model.init(KEY, TABLE)
    with pytest.raises(ValueError, match=told):
        loss(params, TABLE)
    with pytest.raises(ValueError, match=rf"mean\({loss.name}\) fails on the rows of party 1: .*{told}"):
        bind(fp.minimize(fp.mean(loss)), [TABLE])


def test_a_column_that_is_missing_outside_a_run():
    loss = fp.logistic_loss(fp.linear())
    with pytest.raises(KeyError, match="logistic_loss reads 'y', but the columns of numbers are x"):
        loss({"w": np.zeros(3)}, {"x": X, "y": ["n", "y"] * 3 + ["n"]})
    with pytest.raises(KeyError, match="reads 'x', but the columns of numbers are y"):
        loss({"w": np.zeros(3)}, {"y": TABLE["y"]})


def exact(model: Model, params: Any) -> np.ndarray:
    weights = np.asarray(params["w"], float)
    return logistic(X @ weights + np.float64(params["b"]), 2.0 * TABLE["y"] - 1)


@pytest.mark.parametrize("kind", ["numpy", "single", "jax", "list"])
def test_a_loss_outside_a_run_is_in_double_precision_whatever_the_users_setting(kind: str):
    loss = fp.logistic_loss(fp.linear(bias=True))
    with jax.enable_x64(False):
        params: Any = {"w": np.array([0.1, -0.7, 1.3]), "b": np.float64(1 / 3)}
        rows: Any = TABLE
        if kind == "single":
            params = jax.tree.map(np.float32, params)
            rows = TABLE.with_columns(x=np.float32(X))
        elif kind == "jax":
            params = jax.tree.map(jnp.asarray, params)
        elif kind == "list":
            rows = {"x": X.tolist(), "y": TABLE["y"].tolist()}
        found = loss(params, rows)
        assert jnp.zeros(1).dtype == np.float32, "the user's setting is as it was"
    assert found.dtype == np.float64
    x = np.asarray(np.asarray(rows["x"]), float)
    w, b = np.asarray(params["w"], float), float(params["b"])
    np.testing.assert_allclose(found, logistic(x @ w + b, 2.0 * TABLE["y"] - 1), rtol=1e-14)


def test_an_equinox_loss_outside_a_run_is_in_double_precision():
    loss = fp.logistic_loss(fp.equinox_model(network))
    assert isinstance(loss.model, EquinoxModel)
    params = jax.tree.map(np.asarray, loss.model.init(KEY, TABLE))
    expected = loss(params, TABLE)
    with jax.enable_x64(False):
        found = loss(params, TABLE)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_a_loss_inside_the_users_own_gradient():
    loss = fp.logistic_loss(fp.linear())
    w = np.array([0.3, -0.2, 0.5])
    slope = jax.grad(lambda p: loss(p, TABLE).mean())({"w": w})["w"]
    pull = -(2.0 * TABLE["y"] - 1) / (1 + np.exp((2.0 * TABLE["y"] - 1) * (X @ w)))
    np.testing.assert_allclose(slope, pull @ X / 7, rtol=1e-12)


def test_squared_norm_adds_over_the_tree():
    assert float(fp.squared_norm({"a": np.array([3.0, 4.0]), "b": [np.float64(2.0)]})) == 29.0


def test_a_column_that_may_be_missing_has_a_default() -> None:
    parties = fp.split_rows(fp.Table(a=np.arange(4.0), s=list("abcd")), parties=2)
    problem = fp.minimize(fp.mean(lambda p, rows: (p["w"][0] - rows.get("missing", rows["a"])) ** 2))
    assert fp.solve(problem, parties, start={"w": np.zeros(1)}).params["w"][0] == pytest.approx(1.5)


@pytest.mark.parametrize("rows", [4_999, 20_000, 20_011], ids=["few", "in pieces", "a prime number"])
def test_products_of_very_many_rows_are_the_same_on_a_gpu(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    part = OuterProducts(rng.normal(size=(rows, 3)), rng.normal(size=rows))
    here = part.matrix()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_allclose(part.matrix(), here, rtol=1e-12)


def test_outer_products_are_added_up_as_their_matrices_are():
    """What parties of one process add up in one product is the sum of what they would send."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 2.0, size=3)
    replies = []
    for _ in range(4):
        part = SymmetricSum((OuterProducts(rng.normal(size=(5, 3)), rng.normal(size=5)),), rng.normal(size=(3, 3)))
        part = dataclasses.replace(part, rest=part.rest + part.rest.T).in_units(scale)
        replies.append(Reply(sum={"h": part.plus(rng.normal(size=(2, 3)), rng.normal(size=2)), "n": np.ones(())}))
    together = combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *replies))
    one_by_one = [alone(reply) for reply in replies]
    assert one_by_one[0].sum["h"].shape == (6,)
    np.testing.assert_allclose(together.sum["h"], sum(reply.sum["h"] for reply in one_by_one), rtol=1e-12)
    assert together.sum["n"] == 4
    matrix = replies[0].sum["h"].matrix()
    np.testing.assert_allclose(matrix[np.triu_indices(3)], one_by_one[0].sum["h"], rtol=1e-12)
    np.testing.assert_allclose(np.diag(matrix), replies[0].sum["h"].diagonal(), rtol=1e-12)
