"""Differential privacy: what single rows contribute is clipped, and noise is added, before a party tells anything."""

import dataclasses
import math
import secrets

import numpy as np

from fedpact.federation.setting import Setting
from fedpact.privacy.accounting import accountant, epsilon_spent, noise_multiplier
from fedpact.problem.atoms import Scope
from fedpact.protocol.algorithm import Algorithm
from fedpact.protocol.options import check, check_flag

CERTIFICATE = 10  # rounds that the certificate's values cost: their noise is √10 times smaller than a round's
FEWEST = 3  # parties whose shares of noise are added up: of two, each could subtract its own and read the other's
NOT_POOLED: dict[Scope, str] = {
    "party": "holds at each party: noise that hides one of a single party's few rows is as large as what is limited",
    "server": "holds on the server's own rows, which no noise protects",
}


@dataclasses.dataclass(frozen=True)
class DifferentialPrivacy:
    """Noise that hides whether one row took part: `fp.solve(..., privacy=fp.DifferentialPrivacy(3, 1e-5, clip=10))`.

    - `epsilon`: ε > 0, the budget of the whole run: every round, and the values of the certificate.
    - `delta`: δ between 0 and 1, the probability with which ε may be exceeded; well below one in the number of rows, 1e-5 say.
    - `clip`: the largest norm (> 0) that a row's contribution may have: its values and gradients in the objective and in all
      constraints, as one vector, in units of a mean over all rows. Longer contributions are shortened to it. Noise grows in
      proportion to it; but where it shortens many rows, losses look smaller than they are and limits are broken. What most
      rows stay below is right: with columns of mean 0 and deviation 1 two or three times √(features).
    - `summed`: whether each of n parties adds only its share of the noise, with 1/n of the variance (default False: each adds
      all of it).
    - `seed`: of the noise, for tests (default None: the operating system's random numbers). Whoever knows the seed can
      subtract the noise, so a result with a seed says that it is not private.

    Two sets of tables are neighbours if they differ in one row of one party, which in one of them contributes nothing. The
    counts of rows, those of masks and groups and the sums of weights are taken as known to everybody, and so is what was
    agreed on before the run: scales and categories of a recipe, the groups of a column. A person with several rows is protected
    less: with k rows, ε is k times as large, and δ is larger, too.

    Whom it protects against:

    - `summed=False`: everybody who sees messages or results, the server that reads every single reply included. The sum of n
      replies then has noise √n times as large as necessary.
    - `summed=True`: only those who see nothing but sums over the parties: the run has secure sums as by `fp.SecureAggregation`,
      and needs at least 3 parties. Parties that put their own
      shares together take these out: of n shares, k colluding parties leave the noise of n − k.

    Across organisations every party draws its noise itself, and keeps account of what it has told; `max_epsilon` and `min_noise`
    in its policy say what it allows.

    For `fp.PrimalDual`, problems over rows, and pooled constraints. Noise is drawn in float64, and attacks on its last bits are
    not covered. Raises ImportError where dp-accounting is missing (the extra `private`).
    """

    epsilon: float
    delta: float
    clip: float
    summed: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        owner = "DifferentialPrivacy"
        check(owner, "epsilon", self.epsilon, lambda x: x > 0, "the budget ε is > 0; 1 to 10 is usual")
        check(owner, "delta", self.delta, lambda x: 0 < x < 1, "δ is between 0 and 1; 1e-5, say")
        check(owner, "clip", self.clip, lambda x: x > 0, "the largest norm of what a row contributes is > 0")
        check_flag(owner, "summed", self.summed)
        if self.seed is not None:
            check(owner, "seed", self.seed, lambda x: x >= 0, "a whole number from 0, or None", whole=True)
        accountant()

    def check(self, algorithm: Algorithm, setting: Setting) -> None:
        """Raise ValueError where the noise on what this method asks for cannot be accounted, or would drown it."""
        name, (party, server) = type(algorithm).__name__, setting.programs
        if algorithm.noisy_rounds is None:
            raise ValueError(
                f"{name} sends numbers on which one row has no bounded influence, or draws rows by keys that the server knows, "
                "so noise on them cannot be accounted; with fp.DifferentialPrivacy use fp.PrimalDual()"
            )
        if setting.split != "rows":
            raise ValueError("fp.DifferentialPrivacy is for parties who hold rows and share one model: fp.split_rows")
        for constraint, scope in setting.constraints:
            if scope != "pooled":
                raise ValueError(
                    f"with fp.DifferentialPrivacy constraints are over all rows, but {constraint!r} {NOT_POOLED[scope]}; state "
                    "it with .pooled(), or leave it out"
                )
        for place, (atom, _) in enumerate(party.atoms):
            if not atom.over_rows:
                raise ValueError(
                    f"{atom} is no mean over rows, so one row's influence on it has no bound; write it as fp.mean of a row-wise "
                    "function, and a norm of the parameters as regularizer=fp.l2(a)"
                )
            if party.is_guarded(place):
                raise ValueError(f"{atom} is not finite on rows outside its mask; make its function finite on all rows")
        if server.over_rows:
            raise ValueError(
                "the objective reads the server's own rows, which fp.DifferentialPrivacy does not protect; leave them out, or "
                "give them to a party"
            )
        if self.summed and setting.parties < FEWEST:
            raise ValueError(
                f"DifferentialPrivacy(summed=True): shares of noise need at least {FEWEST} parties, there are {setting.parties}; "
                "with summed=False each party adds all of it"
            )

    def multiplier(self, rounds: int) -> float:
        """z: the noise of a round in units of a row's largest influence on it, for a run of so many and the certificate."""
        return noise_multiplier(float(self.epsilon), float(self.delta), rounds + CERTIFICATE)

    def limit(self, rows: int) -> float:
        """The largest norm of what a row adds to a party's sums, whose weights are divided by the counts of rows."""
        return float(self.clip) / rows

    def drawn(self, rounds: int, rows: int, parties: int, shape: tuple[int, ...]) -> list[np.ndarray]:
        """Every party's noise, of this shape for each round and then for the certificate.

        `rows`: of all parties. Where there is a seed, whoever has it knows all of this.
        """
        shape, normals = (rounds + 1, *shape), secret_normals
        if self.seed is not None:
            normals = np.random.default_rng(self.seed).standard_normal
        own = self.multiplier(rounds) * self.limit(rows) / (math.sqrt(parties) if self.summed else 1.0)
        deviations = np.full((rounds + 1, *(1 for _ in shape[1:])), own)
        deviations[-1] /= math.sqrt(CERTIFICATE)
        return [deviations * normals(shape) for _ in range(parties)]

    def drawn_once(self, multiplier: float, rows: int, parties: int, shape: tuple[int, ...], last: bool) -> np.ndarray:
        """A party's noise of one release, from the operating system; `last`: that of the certificate. Others as in `drawn`."""
        own = multiplier * self.limit(rows) / (math.sqrt(parties) if self.summed else 1.0)
        return own / (math.sqrt(CERTIFICATE) if last else 1.0) * secret_normals(shape)

    def epsilon_of(self, multiplier: float, releases: int) -> float:
        """ε of so many releases with this noise, at the option's δ."""
        return epsilon_spent(multiplier, float(self.delta), releases)

    def spent(self, rounds: int, planned: int, rows: int, parties: int) -> "PrivacySpent":
        """What a run has spent after so many of its `planned` rounds, and the certificate."""
        z, delta, clip = self.multiplier(planned), float(self.delta), float(self.clip)
        epsilon = epsilon_spent(z, delta, rounds + CERTIFICATE)
        of_round = z * self.limit(rows) * (1.0 if self.summed else math.sqrt(parties))
        of_values = of_round / math.sqrt(CERTIFICATE)
        return PrivacySpent(epsilon, delta, rounds, z, clip, of_round, of_values, self.summed, self.seed)


@dataclasses.dataclass(frozen=True)
class PrivacySpent:
    """What a run with `fp.DifferentialPrivacy` told of single rows.

    - `epsilon`, `delta`: the run is (ε, δ)-differentially private, for one row more or less.
    - `rounds`: of the run. In each of them, and once more for the certificate, every party told noisy values and gradients.
    - `noise_multiplier`: z, the standard deviation of a round's noise in units of a row's largest influence on it. The
      certificate's is √10 times smaller, and it costs as much of ε as ten rounds.
    - `clip`: as it was asked for.
    - `noise_of_rounds`: the standard deviation of the noise in a round's objective, in each constraint's value and in each entry
      of a gradient, summed over the parties, in their own units. `noise`: the same of the certificate.
    - `summed`: whether parties added shares of the noise: it then holds only against those who see nothing but sums.
    - `seed`: of the noise; where it is not None, nothing was private.
    """

    epsilon: float
    delta: float
    rounds: int
    noise_multiplier: float
    clip: float
    noise_of_rounds: float
    noise: float
    summed: bool
    seed: int | None

    def __str__(self) -> str:
        spent = (
            f"ε = {self.epsilon:.4g} (δ = {self.delta:g}) spent over {self.rounds} rounds and the values above, which hold noise "
            f"of ±{self.noise:.2g} (noise multiplier {self.noise_multiplier:.3g}, clip {self.clip:g})"
        )
        if self.summed:
            spent += "; holds against those who see sums over the parties only"
        return f"not private, the noise has seed {self.seed}: would be {spent}" if self.seed is not None else spent


def secret_normals(shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers from the operating system's cryptographic generator, by the inverse of their distribution."""
    words = np.frombuffer(secrets.token_bytes(8 * math.prod(shape)), np.uint64) >> np.uint64(11)
    from scipy.special import ndtri  # which takes long to import

    return ndtri((words.astype(float) + 0.5) / 2.0**53).reshape(shape)
