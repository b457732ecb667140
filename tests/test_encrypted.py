"""FairVFL under encryption: the same solution, ciphertext on the way, and what is refused."""

import functools
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import columns
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from columns import PARTIES, RIDGE, TABLE, fair, flat

import fedpact as fp
from fedpact.algorithms.fair_vfl.method import FairVFLMethod
from fedpact.algorithms.fair_vfl.parties import Ciphertext, MaskedGradients
from fedpact.engines.local import LocalNetwork
from fedpact.privacy import ckks
from fedpact.protocol.algorithm import Goal
from fedpact.protocol.phases import Ask, play
from fedpact.run import drivers
from fedpact.run.selection import protected
from fedpact.settings import bind

pytest.importorskip("tenseal")

SEALED = fp.EncryptedResiduals()
NEURAL = fp.logistic_loss(fp.split_model(bottom=lambda width: fp.mlp([width, 2, 1])), labels=(-1, 1))


@functools.cache
def sealed() -> tuple[pathlib.Path, fp.Result]:
    """An encrypted run to 1e-5, and where it is saved."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "run"
    return folder, fp.solve(fair(), PARTIES, fp.FairVFL(), tolerance=1e-5, privacy=SEALED, save=folder)


def test_encrypted_and_plain_runs_end_alike() -> None:
    _, found = sealed()
    plain = fp.solve(fair(), PARTIES, fp.FairVFL(), tolerance=1e-5)
    assert found.converged
    assert plain.converged
    assert found.objective == pytest.approx(plain.objective, abs=1e-6)
    np.testing.assert_allclose(flat(found), flat(plain), atol=1e-3)
    assert abs(found.rounds - plain.rounds) <= 2


def test_bytes_and_exchanges_are_counted() -> None:
    _, found = sealed()
    assert found.exchanges == 3 * found.rounds
    n, passive = TABLE.rows, 2
    sent = np.prod(ckks.residual_shape(n)) * passive
    back = np.prod(ckks.product_shape(n, 2)) * passive
    assert sent < found.history["bytes_down"][0] < 1.1 * sent
    assert back < found.history["bytes_up"][0] < 1.1 * back


def test_an_encrypted_run_does_not_go_on_unencrypted() -> None:
    folder, _ = sealed()
    with pytest.raises(ValueError, match="another method or options"):
        fp.solve(fair(), PARTIES, fp.FairVFL(), tolerance=1e-5, save=folder, resume=True)


def test_neural_bottoms() -> None:
    problem = fair(0.05, NEURAL)
    found, plain = (
        fp.solve(problem, PARTIES, fp.FairVFL(local_steps=2), tolerance=1e-9, max_rounds=12, privacy=privacy)
        for privacy in (SEALED, None)
    )
    np.testing.assert_allclose(found.history["objective"], plain.history["objective"], atol=1e-5)
    assert found.objective < found.history["objective"][0] - 0.01


def test_fed_bcd_hands_it_on() -> None:
    free = fp.minimize(fp.mean(columns.LOSS), regularizer=fp.l2(RIDGE))
    setting = bind(free, PARTIES).setting
    sealed, plain = (protected(fp.FedBCD(), privacy).bind(setting) for privacy in (SEALED, None))
    assert isinstance(sealed, FairVFLMethod)
    assert sealed.encrypted
    assert sealed != plain


class Listening:
    """A network that keeps what is sent to passive parties, and what they reply one by one."""

    def __init__(self, network: LocalNetwork):
        self.network = network
        self.exchanged: list[Any] = []

    def exchange(self, asks: Sequence[Ask], states: Any) -> Any:
        replies, states = self.network.exchange(asks, states)
        pairs = zip(asks, replies, strict=True)
        self.exchanged += [(ask.message, reply.per_party) for ask, reply in pairs if ask.among == "passive"]
        return replies, states


def test_passive_parties_and_server_see_ciphertext_and_masks() -> None:
    bound = bind(fair(), PARTIES)
    method, network, own = fp.FairVFL(privacy=SEALED).bind(bound.setting), LocalNetwork.of(bound), bound.server_data
    server, states = drivers.begin(method, network, own, bound.start, Goal(jnp.asarray(0.0), jnp.asarray(0.0)), 0)

    @jax.jit
    def once(server: Any, states: Any) -> tuple[Any, Any, list[Any]]:
        listening = Listening(network)
        carry, states, _ = play(method.round, own, listening, server, states)
        return method.finish(own, carry)[0], states, listening.exchanged

    masked = []
    for _ in range(2):
        server, states, ((first, products), (second, _)) = once(server, states)
        assert isinstance(first, Ciphertext)
        assert isinstance(second, MaskedGradients)
        assert first.encrypted_residuals.dtype == products.encrypted_masked_gradient.dtype == jnp.uint8
        assert second.masked_gradients.shape == (3, 2)  # one for each party, of zeros for the bank
        assert {leaf.size for leaf in jax.tree.leaves((first.move, second.move))} == {1, fp.FairVFL().memory}
        masked.append(np.asarray(second.masked_gradients))
        gradients = bound.by_name(tuple(state.gradient for state in states))
        expected = np.asarray(TABLE["x"]).T @ -np.asarray(TABLE["y"], float) / (2 * TABLE.rows)
        if len(masked) == 1:
            for name in ("shop", "network"):
                np.testing.assert_allclose(gradients[name], expected[columns.FEATURES[name]], atol=1e-6)
    sent = np.stack(masked)
    np.testing.assert_array_equal(sent[:, 0], 0.0)
    assert len(np.unique(np.round(sent[:, 1:], 9))) == sent[:, 1:].size
    assert np.abs(sent[:, 1:]).max() <= 1.0  # in units of the modulus
    assert len({np.asarray(state.keys.mask_seed).tobytes() for state in states if state.keys is not None}) == 1


def test_what_cannot_be_encrypted_is_said() -> None:
    with pytest.raises(ValueError, match=r"protects fp.FairVFL and fp.FedBCD, not SSCA"):
        fp.solve(fair(), PARTIES, fp.SSCA(batch=10), privacy=SEALED)
    model = fp.split_model(bottom=lambda width: fp.linear(bias=False), combine="concat", top=fp.linear())
    with pytest.raises(ValueError, match="combine='sum'"):
        fp.solve(fair(loss=fp.logistic_loss(model, labels=(-1, 1))), PARTIES, fp.FairVFL(), privacy=SEALED)
    everybody = fp.split_columns(TABLE, columns.FEATURES, active="all")
    alone = fp.solve(fair(), everybody, fp.FairVFL(), tolerance=1e-4, privacy=SEALED)
    assert alone.converged
    assert alone.exchanges == alone.rounds
