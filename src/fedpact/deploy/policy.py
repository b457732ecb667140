"""What a party agrees to, in a file of its own that nobody else can change.

# policy.toml
digests = ["1f0c…"]         # pacts that may run here; `fedpact wire pact.py` prints a pact's digest (default: any)
min_rows = 20               # rows behind any mean and in any group that the party reveals, batches too; over columns, where every
                            # row's output is sent, a party with more than 1 takes no part; of an evaluation, groups with fewer
                            # rows of a label are withheld; of a recipe, smaller categories are, and with more than 1 the party
                            # tells no least and greatest values and no histograms (default: 1)
max_rounds = 500            # that the party answers in one run, repeated ones after a resume too (default: no limit)
secure_summation = false    # whether the server may see sums over parties only (default: false)
"""

import dataclasses
import os
import pathlib
import tomllib

from fedpact.engines.serialization import Refused
from fedpact.preparation.recipe import Recipe

OUTSIDE = 10  # exchanges of one kind outside of rounds, beside as many as there may be rounds: resumes and certificates


@dataclasses.dataclass(frozen=True)
class Policy:
    """A party's own conditions.

    digests: pacts that may run here (default None: any). min_rows: behind any mean that the party reveals, and in what an
    evaluation tells of a group and label (default 1).
    max_rounds: that it answers in one run (default None: no limit). secure_summation: the server may see sums over parties
    only; no engine of this version adds up in secret, so where it is demanded the party takes no part (default false).
    """

    digests: tuple[str, ...] | None = None
    min_rows: int = 1
    max_rounds: int | None = None
    secure_summation: bool = False

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
        kinds = {"digests": list, "min_rows": int, "max_rounds": int, "secure_summation": bool}
        for name, value in conditions.items():
            if name not in kinds:
                raise ValueError(f"{path}: {name!r} is no condition; there are {', '.join(kinds)}")
            if type(value) is not kinds[name] or (kinds[name] is int and value < 1):
                wanted = "a positive whole number" if kinds[name] is int else f"a {kinds[name].__name__}"
                raise ValueError(f"{path}: {name} = {value!r} should be {wanted}")
        digests = conditions.get("digests")
        return cls(**{**conditions, "digests": None if digests is None else tuple(map(str, digests))})

    def admit(self, digest: str) -> None:
        """Refuse a pact that may not run here."""
        if self.digests is not None and digest not in self.digests:
            raise Refused(f"its policy allows the pacts {', '.join(self.digests) or 'none'}, and this one is {digest}")
        if self.secure_summation:
            raise Refused("its policy demands secure summation, which no engine of this version has")

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

    def admit_exchange(self, count: int, in_a_round: bool) -> None:
        """Refuse the `count`th exchange of one kind; what is asked for outside of rounds has a few more."""
        if self.max_rounds is not None and count > self.max_rounds + (0 if in_a_round else OUTSIDE):
            what = f"this is round {count}" if in_a_round else "as many exchanges of this kind were answered"
            raise Refused(f"its policy allows {self.max_rounds} rounds, and {what}")
