"""What a party agrees to, in a file of its own that nobody else can change.

# policy.toml
digests = ["1f0c…"]         # pacts that may run here; `fedpact wire pact.py` prints a pact's digest (default: any)
min_rows = 20               # rows behind any mean and in any group that the party reveals, batches too; over columns, where every
                            # row's output is sent, a party with more than 1 takes no part; of an evaluation, groups with fewer
                            # rows of a label are withheld; of a recipe, smaller categories are, and with more than 1 the party
                            # tells no least and greatest values and no histograms (default: 1)
max_rounds = 500            # that the party answers for one pact, over all runs; a question that is repeated, as after a
                            # resume, is not counted again (default: no limit)
files = ["9b74…"]           # sha256 of the pact file and of every module of its folder that it imports, as `sha256sum` and
                            # `fedpact wire` print them; other files are not even executed (default: any)
secret_batches = true       # whether mini-batches are drawn with a secret of the party, so that the server neither knows nor
                            # chooses their rows; false: as in one process, to compare the two (default: true)
matching = true             # whether the party takes part in a private matching of ids (default: true)
max_ids = 1000000           # ids of any other party's list that it blinds in one run; each is a guess about its own ids that a
                            # dishonest party or server may make (default: no limit)
secure_summation = false    # whether the server may learn sums over parties only, added up in secret, of parties whose keys
                            # are in the pact (default: false)
checked_points = false      # whether the party has to compute every point that it is asked at itself, from the sums of all, so
                            # that a server cannot choose points; of parties whose keys are in the pact (default: false)
min_parties = 3             # in a sum that is added up in secret (default: 3)
max_epsilon = 3.0           # ε that all runs of a pact together may spend of its rows, by noise that the party adds itself
                            # (fp.DifferentialPrivacy); a pact without noise is refused (default: no noise is demanded)
max_delta = 1e-5            # the largest δ that goes with it (default: 1e-5)
min_noise = 5.0             # the least noise of a round, in units of a row's largest influence on it (default: any)
signing_key = "own.key"     # the party's own key, as `fedpact keys` makes it; relative to this file (default: FEDPACT_KEY, or
                            # where `fedpact keys` puts it)
"""

import dataclasses
import math
import os
import pathlib
import re
import tomllib
from collections.abc import Mapping

from fedpact.engines.serialization import Refused
from fedpact.preparation.recipe import Recipe

OUTSIDE = 10  # exchanges of one kind outside of rounds, beside as many as there may be rounds: resumes and certificates


@dataclasses.dataclass(frozen=True)
class Policy:
    """A party's own conditions.

    digests: pacts that may run here (default None: any). min_rows: behind any mean that the party reveals, and in what an
    evaluation tells of a group and label (default 1).
    max_rounds: that it answers for one pact, over all runs (default None: no limit). files: sha256 of the files that a pact may
    consist of (default None: any). secret_batches: mini-batches are drawn with a secret of the party (default true).
    secure_summation: the server may learn sums over parties only, of parties whose keys the pact names (default false).
    checked_points: the party computes the points that it is asked at itself, and refuses others (default false). min_parties:
    in a secure sum (default 3). signing_key: the file of the party's own key (default None: see fedpact.deploy.secure_sums).
    max_epsilon: that all runs of a pact may spend (default None: no noise is demanded), at a δ of at most max_delta (default
    1e-5). min_noise: the least noise multiplier of a round (default None: any).
    matching: it takes part in private matchings of ids (default true). max_ids: of any other party's list that it blinds in one
    run (default None: no limit).
    """

    digests: tuple[str, ...] | None = None
    min_rows: int = 1
    max_rounds: int | None = None
    secure_summation: bool = False
    min_parties: int = 3
    signing_key: str | None = None
    matching: bool = True
    max_ids: int | None = None
    files: tuple[str, ...] | None = None
    secret_batches: bool = True
    checked_points: bool = False
    max_epsilon: float | None = None
    max_delta: float = 1e-5
    min_noise: float | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None) -> "Policy":
        """From a TOML file; what it does not say has its default."""
        if path is None:
            return cls()
        path = pathlib.Path(path)
        try:
            conditions = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no policy file {path}; a party that was given one runs nothing without it"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no TOML file: {error}") from None
        kinds = {
            "digests": list, "min_rows": int, "max_rounds": int, "secure_summation": bool, "min_parties": int, "signing_key": str,
            "matching": bool, "max_ids": int, "files": list, "secret_batches": bool, "checked_points": bool, "max_epsilon": float,
            "max_delta": float, "min_noise": float,
        }  # fmt: skip
        for name, value in conditions.items():
            if name not in kinds:
                raise ValueError(f"{path}: {name!r} is no condition; there are {', '.join(kinds)}")
            number = kinds[name] is float and type(value) in (int, float) and 0 < value < math.inf
            if not number and (
                type(value) is not kinds[name] or kinds[name] is float or (kinds[name] is int and value < 1)
            ):
                words = {int: "a positive whole number", float: "a number above 0"}
                wanted = words.get(kinds[name], f"a {kinds[name].__name__}")
                raise ValueError(f"{path}: {name} = {value!r} should be {wanted}")
        lists = {name: tuple(map(str, value)) for name, value in conditions.items() if kinds[name] is list}
        wrong = [each for each in lists.get("files", ()) if not re.fullmatch("[0-9a-f]{64}", each)]
        if wrong:
            raise ValueError(f"{path}: files has {wrong[0]!r}, which is no sha256: 64 digits and letters from a to f")
        key = conditions.get("signing_key")
        beside = None if key is None else str(path.parent / key)
        return cls(**{**conditions, **lists, "signing_key": beside})

    def admit_files(self, files: Mapping[str, str]) -> None:
        """Raise ValueError where a file of a pact is none of those that may be executed here; `files`: their sha256 by name."""
        allowed = files.values() if self.files is None else self.files
        for name, found in files.items():
            if found not in allowed:
                raise ValueError(
                    f"the policy allows the files with the sha256 {', '.join(allowed) or 'none'}, and that of {name} is "
                    f"{found}; nothing of it was executed: review the file, and put its sha256 into `files`"
                )

    def admit(self, digest: str) -> None:
        """Refuse a pact that may not run here."""
        if self.digests is not None and digest not in self.digests:
            raise Refused(f"its policy allows the pacts {', '.join(self.digests) or 'none'}, and this one is {digest}")

    def admit_sums(self, parties: int, secure: bool, known: bool, disclose: bool) -> None:
        """Refuse sums that are not as this party wants them; `known`: whether the pact has the parties' keys."""
        if secure and parties < self.min_parties:
            raise Refused(f"its policy demands sums over at least {self.min_parties} parties, and there are {parties}")
        if not self.secure_summation:
            return
        if not secure:
            raise Refused("its policy demands secure sums, and the pact adds up in the clear")
        if not known:
            raise Refused(
                "its policy demands secure sums, and the pact has no `keys` of the parties: see `fedpact keys`"
            )
        if disclose:
            raise Refused(
                "its policy demands secure sums, and by disclose=True parties tell their constraints one by one"
            )

    def admit_points(self, checked: bool, known: bool) -> None:
        """Refuse a server that may choose the points; `checked`: whether the parties compute them, `known`: as above."""
        if self.checked_points and not (checked and known):
            missing = "does not check them" if known else "has no `keys` of the parties: see `fedpact keys`"
            raise Refused(
                f"its policy demands checked points, and the pact {missing}; they are checked by default with secure sums and "
                "`keys`, over rows and where the server has no rows of its own"
            )

    def admit_noise(self, epsilon: float | None, delta: float | None, multiplier: float | None) -> None:
        """Refuse noise that is too little: ε and δ of a pact, and the noise multiplier of a round; None where it has no noise."""
        if multiplier is None or epsilon is None or delta is None:
            if self.max_epsilon is not None or self.min_noise is not None:
                raise Refused(
                    "its policy demands noise, and the pact has none: options = {'privacy': fp.DifferentialPrivacy}"
                )
            return
        if self.max_epsilon is not None and (epsilon > self.max_epsilon or delta > self.max_delta):
            raise Refused(
                f"its policy allows ε = {self.max_epsilon:g} at a δ of {self.max_delta:g}, and the pact has ε = {epsilon:g} at "
                f"{delta:g}"
            )
        if self.min_noise is not None and multiplier < self.min_noise:
            raise Refused(
                f"its policy demands a noise multiplier of {self.min_noise:g}, and the pact's is {multiplier:.4g}"
            )

    def admit_means(self, means: list[tuple[str, int]]) -> None:
        """Refuse where a mean or a group is over too few of the party's rows; one over none reveals nothing."""
        for mean, count in means:
            if 0 < count < self.min_rows:
                raise Refused(f"{mean} is over fewer of its rows than the {self.min_rows} that its policy demands")

    def admit_single_values(self, recipe: Recipe) -> None:
        """Refuse a recipe whose fit tells values of single rows: least and greatest ones, and narrow cells of histograms."""
        for ask in recipe.asks if self.min_rows > 1 else ():
            if ask.extremes or ask.cells:
                what = "least and greatest value" if ask.extremes else "histogram"
                raise Refused(
                    f"its policy demands {self.min_rows} rows behind a number, and the recipe asks for the {what} of column "
                    f"{ask.column!r}"
                )

    def admit_batch(self, batch: int | None) -> None:
        """Refuse means over mini-batches that are too small."""
        if batch is not None and batch < self.min_rows:
            raise Refused(f"its policy demands {self.min_rows} rows behind a mean, and the method's batch has {batch}")

    def admit_row_outputs(self) -> None:
        """Refuse to send an output for every row."""
        if self.min_rows > 1:
            raise Refused(
                f"its policy demands {self.min_rows} rows behind a mean, and over columns every row's output is sent"
            )

    def admit_matching(self) -> None:
        """Refuse to match ids at all."""
        if not self.matching:
            raise Refused("its policy allows no matching of ids")

    def admit_ids(self, party: str, count: int) -> None:
        """Refuse to blind more ids of another party's list than are allowed."""
        if self.max_ids is not None and count > self.max_ids:
            raise Refused(
                f"its policy allows {self.max_ids:,} ids in another party's list, and that of {party!r} has more"
            )

    def admit_exchange(self, count: int, in_a_round: bool) -> None:
        """Refuse the `count`th exchange of one kind; what is asked for outside of rounds has a few more."""
        if self.max_rounds is not None and count > self.max_rounds + (0 if in_a_round else OUTSIDE):
            what = f"this is round {count}" if in_a_round else "as many exchanges of this kind were answered"
            raise Refused(f"its policy allows {self.max_rounds} rounds of this pact over all runs, and {what}")
