"""What leaks: the attacks by themselves, and on plain and encrypted runs."""

import functools
from typing import Any

import columns
import numpy as np
import pytest
from columns import FEATURES, LOSS, PARTIES, RIDGE, TABLE, fair

import fedpact as fp
from fedpact.privacy import attacks

CUSTOMERS = columns.customers(1500, seed=3)
MANY = fp.split_columns(CUSTOMERS, FEATURES, active=["bank"])


@functools.cache
def plain() -> fp.Audit:
    """As printed but for longer steps, until the multipliers tell the groups apart."""
    return fp.audit(fair(1e-3), MANY, fp.FairVFL(rho=0.0, dual_step=1.0, step=1.0), rounds=60)


@functools.cache
def sealed() -> fp.Audit:
    pytest.importorskip("tenseal")
    method = fp.FairVFL(rho=0.0, dual_step=1.0, step=1.0)
    return fp.audit(fair(1e-3), MANY, method, rounds=20, privacy=fp.EncryptedResiduals())


def test_the_plain_protocol_shows_labels_and_groups() -> None:
    assert set(plain()) == {"shop", "network"}
    for leak in plain().values():
        assert leak.label_accuracy >= 0.99
        assert leak.label_majority == pytest.approx(attacks.majority(CUSTOMERS["y"]))
        assert leak.group_accuracy is not None
        assert leak.group_majority is not None
        assert leak.group_accuracy >= 0.98
        assert leak.group_majority < 0.9
    told = str(plain())
    assert "60 rounds of FairVFL" in told
    assert "shop" in told
    assert "1.000" in told


def test_the_encrypted_protocol_hides_them() -> None:
    for name, leak in sealed().items():
        assert leak.group_accuracy is not None
        assert leak.group_majority is not None
        assert leak.label_accuracy <= leak.label_majority + 0.05
        assert leak.group_accuracy <= leak.group_majority + 0.05
        # what a party learns of labels from its own gradient, no encryption can change
        assert leak.gradient_label_accuracy == plain()[name].gradient_label_accuracy
    assert "FairVFL with encrypted residuals" in str(sealed())


def test_fed_bcd_shows_labels_too() -> None:
    free = fp.minimize(fp.mean(LOSS), regularizer=fp.l2(RIDGE))
    leak = fp.audit(free, MANY, fp.FedBCD(), rounds=1, group="sex")["network"]
    assert leak.label_accuracy >= 0.99
    assert leak.group_accuracy is not None


# the attacks


def test_signs() -> None:
    view = np.array([[-0.1, 0.2, -0.3], [1.0, 1.0, 1.0]])
    assert attacks.sign_attack(view).tolist() == [1, -1, 1]


def test_two_means_is_the_best_split() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=9) + 2.0 * rng.integers(0, 2, 9)
        split, explained = attacks.two_means(values)
        best = max(
            1.0
            - sum(((part - part.mean()) ** 2).sum() for part in np.split(np.sort(values), [k]))
            / ((values - values.mean()) ** 2).sum()
            for k in range(1, 9)
        )
        assert explained == pytest.approx(best)
        assert values[split == 0].max() < values[split == 1].min()
    assert attacks.two_means(np.ones(4))[1] == 0.0


def test_clusters_of_ratios() -> None:
    rng = np.random.default_rng(1)
    group, first = rng.integers(0, 2, 50), -rng.uniform(0.5, 1.0, 50)
    view = np.stack([first, first * rng.uniform(0.9, 1.1, 50), first * np.where(group == 1, 1.6, 0.7)])
    assert attacks.agreement_up_to_names(attacks.clustering_attack(view), group) == 1.0
    assert attacks.clustering_attack(view[:1]).tolist() == [0] * 50
    with_zero = np.concatenate([np.zeros((1, 50)), view])
    assert attacks.agreement_up_to_names(attacks.clustering_attack(with_zero), group) == 1.0
    tiny = np.concatenate([np.full((1, 50), 1e-300), view])
    assert attacks.agreement_up_to_names(attacks.clustering_attack(tiny), group) == 1.0


def test_a_gradient_tells_what_a_regression_on_the_labels_would() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 3))
    y = np.where(x @ np.array([2.0, -1.0, 0.5]) + 0.3 * rng.normal(size=300) > 0, 1, -1)
    guess = attacks.logistic_attack(x, x.T @ (-y / 600))
    assert attacks.agreement(guess, y) > 0.9
    noise = attacks.logistic_attack(x, x.T @ (-rng.permutation(y) / 600))
    assert attacks.agreement(noise, y) < 0.75


def test_messages_as_one_number_a_row() -> None:
    sealed, numbers = np.arange(256, dtype=np.uint8).repeat(4).reshape(2, -1), np.arange(8.0)
    assert attacks.per_row([np.zeros(()), sealed], 8) is not None
    np.testing.assert_array_equal(attacks.per_row([sealed, numbers], 8), numbers)
    np.testing.assert_array_equal(attacks.per_row([numbers.reshape(4, 2)], 4), [1.0, 5.0, 9.0, 13.0])
    assert attacks.per_row([np.zeros(3)], 8) is None
    cut = attacks.cut_to_rows(sealed, 8)
    assert cut.shape == (8,)
    np.testing.assert_allclose(cut, sealed.reshape(8, -1).mean(1) - 127.5)


# what is refused


def test_what_cannot_be_audited_is_said() -> None:
    def audited(problem: Any = None, parties: Any = PARTIES, method: Any = None, **more: Any) -> Any:
        return fp.audit(problem or fair(), parties, method or fp.FairVFL(), **more)

    with pytest.raises(ValueError, match="nobody to audit"):
        audited(parties=fp.split_columns(TABLE, FEATURES, active="all"))
    with pytest.raises(ValueError, match="server= and outsiders= are for parties that hold rows"):
        audited(outsiders=TABLE)
    with pytest.raises(TypeError, match=r"over columns fp.audit replays fp.FairVFL and fp.FedBCD, not SSCA"):
        audited(method=fp.SSCA(batch=10))
    with pytest.raises(ValueError, match=r"rounds=0"):
        audited(rounds=0)
    with pytest.raises(ValueError, match=r"group='age'.*hold y, sex"):
        audited(group="age", rounds=1)
    with pytest.raises(TypeError, match="EncryptedResiduals"):
        audited(privacy=True, rounds=1)
    amounts = fp.Table(x=TABLE["x"], y=np.arange(TABLE.rows, dtype=float), sex=TABLE["sex"])
    squared = fp.minimize(fp.mean(fp.squared_loss(columns.MODEL)))
    with pytest.raises(ValueError, match="labels of two values; column 'y' has 80"):
        audited(squared, fp.split_columns(amounts, FEATURES), rounds=1)
    with pytest.raises(KeyError, match="no passive party 'bank'; there are shop, network"):
        plain()["bank"]
