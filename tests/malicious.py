"""A server that does not keep to the protocol: it says what it likes to one party, and reads rows from the answers.

`MaliciousServer` talks to a real `Site` in messages of its own. The attacks take functions, so that they can be tried against
any way to ask: `rows_by_chosen_points(server.gradient, ...)`.
"""

import dataclasses
import pathlib
import platform
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedpact as fp
from fedpact.algorithms.averaging.fed_sgd import BatchKey
from fedpact.algorithms.parts.batches import folded_key
from fedpact.deploy.party import Site
from fedpact.engines.serialization import pack, unpack
from fedpact.protocol.phases import GradientRequest
from fedpact.protocol.sampling import draw

ROWS, WIDTH = 60, 4  # of every party of this pact
PACT = """
import fedpact as fp

parties = ["north", "south", "west"]
loss = fp.logistic_loss(fp.linear(bias=True))
problem = fp.minimize(fp.mean(loss), regularizer=fp.l2(1e-2))
algorithm = fp.FedSGD(batch=BATCH, step=0.1)
options = {"max_rounds": 12, "privacy": None}


def load(party):
    data = fp.datasets.breast_cancer()[:180]
    return fp.split_rows(fp.Table(x=data["x"][:, :4], y=data["y"]), parties=parties, seed=7)[party]
"""


def written(folder: pathlib.Path, batch: int, text: str = PACT) -> pathlib.Path:
    """A pact whose parties send gradients on batches; with batch=60, on all their rows."""
    file = folder / "pact.py"
    file.write_text(text.replace("BATCH", str(batch)))
    return file


class Refusal(Exception):
    """What a party answers in place of an answer."""


@dataclasses.dataclass
class MaliciousServer:
    """Asks one party of a pact, in a run of its own, whatever it likes.

    - `run`: the name of the run, 16 hexadecimal digits.
    """

    site: Site
    run: str = "0" * 16
    asked: int = 0

    def says(
        self, kind: str, arrays: dict[str, np.ndarray] | None = None, **words: Any
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The words and the arrays of the party's answer; raises Refusal where it refuses."""
        versions = {"fedpact": fp.__version__, "Python": ".".join(platform.python_version_tuple()[:2])}
        first = {"run": self.run, "session": "1" * 16, "versions": versions, "digest": self.site.pact.digest}
        answer, found = unpack(self.site.answer(pack({**first, "kind": kind, **words}, arrays)))
        if "refused" in answer:
            raise Refusal(answer["refused"])
        return answer, found

    def meet(self) -> None:
        """Greet the party, and tell it that all others are like it."""
        description = self.says("hello")[0]["description"]
        self.says("meet", descriptions=[description] * len(self.site.pact.parties), resume=None)

    def step(self, title: str, message: Any) -> dict[str, np.ndarray]:
        """The reply to the exchange whose name begins so."""
        if self.site.run is None or self.site.run.name != self.run:
            self.meet()
            self.asked = 0
        run = self.site.run
        assert run is not None
        (exchange,) = (e for e in run.plan.exchanges.values() if e.name.startswith(title))
        before = -1 if not run.made_by else max(run.made_by)
        self.asked += 1
        party = self.site.party
        words = {"exchange": exchange.name, "number": self.asked, "versions": {party: before}, "oldest": {party: -1}}
        return self.says("step", exchange.message.by_name(message), **words)[1]

    def gradient_on_a_batch(self, w: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Of the party's part of the objective, in a round of FedSGD."""
        if self.asked == 0 or self.site.run is None or self.site.run.name != self.run:
            self.step("Method.join", None)
        reply = self.step("FedSGDOverRows.estimate", GradientRequest(BatchKey(jnp.asarray(key)), jnp.asarray(w)))
        (gradient,) = (array for name, array in reply.items() if "gradients" in name)
        return gradient[0]

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """The same on all rows, where the pact's batch has all."""
        return self.gradient_on_a_batch(w, np.zeros(2, np.uint32))


def rows_by_chosen_keys(gradient: Callable[[np.ndarray, np.ndarray], np.ndarray], place: int, batch: int) -> np.ndarray:
    """At w = 0, gradients on batches whose keys the server chose are a linear system in the rows: twice as many as rows."""
    keys = [np.asarray(jax.random.key_data(jax.random.key(number))) for number in range(2 * ROWS)]
    drawn, sums = np.zeros((len(keys), ROWS)), []
    places = jax.jit(lambda key: draw(folded_key(key, place), jnp.asarray(ROWS), batch))
    for line, key in zip(drawn, keys, strict=True):
        line[np.asarray(places(key))] = 1.0
        sums.append(gradient(np.zeros(WIDTH + 1), key))
    scaled = np.linalg.lstsq(drawn, np.stack(sums), rcond=None)[0]
    return scaled[:, 1:] / scaled[:, :1]


def rows_by_chosen_points(
    gradient: Callable[[np.ndarray], np.ndarray], width: int = WIDTH, count: int = ROWS, steepness: float = 1e9
) -> np.ndarray:
    """Rows of a party that answers with gradients of a logistic loss at any point, one question for each row.

    At bias −steepness · t and weights steepness · v every row counts 1 where v·x > t, else 0: differences of answers are sums of
    the rows between two thresholds, and the bias says how many. Intervals are split at their mean until each has one row. Whoever
    computes the server's step and refuses other points stops it; a limit on rounds stops it after as many rows.

    - `gradient`: of the party's part of the objective at (bias, weights); the rows found so far are returned when it refuses.
    - `width`, `count`: of the party's table, which it describes.
    """
    v = np.random.default_rng(0).normal(size=width)
    rows: list[np.ndarray] = []

    def beyond(t: float) -> np.ndarray:
        return gradient(steepness * np.append(-t, v))

    try:
        none = beyond(1e6)
        every = beyond(-1e6) - none
        scale = count / every[0]
        waiting = [(np.zeros(width + 1), every * scale)]  # sums beyond the upper and the lower threshold of an interval
        while waiting:
            upper, lower = waiting.pop()
            inside = lower - upper
            if round(inside[0]) == 1:
                rows.append(inside[1:])
                continue
            middle = (beyond(float(v @ inside[1:] / inside[0])) - none) * scale
            waiting += [(upper, middle), (middle, lower)]
    except Refusal:
        pass
    return np.reshape(rows, (-1, width))


def found(rows: np.ndarray, true: np.ndarray, within: float = 1e-4) -> int:
    """How many of the true rows are among these."""
    if not len(rows):
        return 0
    return int((np.abs(true[:, None] - rows[None]).max(-1).min(1) < within).sum())
