"""What `fp.audit` hands back over rows: what a curious server can compute, by party and in words."""

import dataclasses
from collections.abc import Iterator, Mapping

from fedpact.report.markup import text

MOST_SENTENCES = 6  # on single parties, below the table


@dataclasses.dataclass(frozen=True)
class RowLeak:
    """What a curious server can compute of one party's rows. Shares are from 0 to 1; None where there was nothing to attack.

    - `rows`: how many the party has.
    - `rows_recovered`: the share of them that the server reads from what it receives, to 1e-4 (relative, all features).
    - `label_accuracy`: the share of labels guessed right, of rows that were recovered or whose features the server knows.
      Where nothing is told, the guess is the more frequent label. What the model itself predicts from features does not count.
    - `majority`: what always guessing the party's more frequent label gets right.
    - `membership`: the server knows rows of the party and as many of others, and says which are the party's: the mean of the
      shares that it gets right of either (0.5 is chance).
    - `federation_membership`: the same against rows that nobody holds (`outsiders=`): does any party hold this row?
    - `wrong_rows`: how many vectors the attack takes for rows that are nobody's; the server cannot tell these from the others.
    - `words`: what was done and what was not, in sentences.
    """

    rows: int
    rows_recovered: float
    label_accuracy: float | None
    majority: float | None
    membership: float | None
    federation_membership: float | None = None
    wrong_rows: int = 0
    words: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class RowAudit(Mapping[str, RowLeak]):
    """What a curious server can compute: a mapping from the parties' names to `fp.RowLeak`. `print(audit)` has the table.

    - `leaks`: by party. `rounds`: how many were watched. `method`: in words.
    - `sums`: whether the server received sums over parties only.
    """

    leaks: dict[str, RowLeak]
    rounds: int
    method: str
    sums: bool

    def __getitem__(self, party: str) -> RowLeak:
        if party not in self.leaks:
            raise KeyError(f"no party {party!r}; there are {', '.join(self.leaks)}")
        return self.leaks[party]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaks)

    def __len__(self) -> int:
        return len(self.leaks)

    @property
    def head(self) -> str:
        what = "sums over all parties" if self.sums else "each party's replies"
        return f"what a curious server can compute from {self.rounds} rounds of {self.method}, receiving {what}"

    def cells(self) -> list[list[str]]:
        """The table: titles, then one line for each party."""
        outside = any(leak.federation_membership is not None for leak in self.leaks.values())
        titles = ["party", "rows", "read", "wrongly", "labels right", "majority", "membership"]
        lines = [titles + ["in the federation"] * outside]
        for name, leak in self.leaks.items():
            shares = [leak.label_accuracy, leak.majority, leak.membership]
            shares += [leak.federation_membership] * outside
            read = f"{round(leak.rows_recovered * leak.rows)}"
            lines.append(
                [name, str(leak.rows), read, str(leak.wrong_rows), *("-" if x is None else f"{x:.3f}" for x in shares)]
            )
        return lines

    def notes(self) -> list[str]:
        """Sentences on parties; those that hold for all of them once."""
        every = [leak.words for leak in self.leaks.values()]
        common = [words for words in every[0] if all(words in others for others in every)]
        own = list(dict.fromkeys(words for leak in every for words in leak if words not in common))
        if len(own) > MOST_SENTENCES:
            own = [
                *own[:MOST_SENTENCES],
                f"… and {len(own) - MOST_SENTENCES} sentences more: audit[party].words has them",
            ]
        scale = (
            "membership: 0.5 is chance. A number that is no better than guessing says that these attacks fail, no more."
        )
        return [*own, *common, scale]

    def __str__(self) -> str:
        table = self.cells()
        widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
        lines = [
            "  ".join(
                cell.rjust(w) if place else cell.ljust(w)
                for place, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        ]
        return "\n".join([self.head, *(f"  {line.rstrip()}" for line in lines), *self.notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        titles, *rows = self.cells()
        top = "".join(f"<th>{text(cell)}</th>" for cell in titles)
        body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
        below = "<br>".join(map(text, self.notes()))
        caption = text(self.head)
        return f"<table><caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table><p>{below}</p>"
