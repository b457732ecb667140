"""A promise in words: kept, or not shown and why."""

import math
from typing import TYPE_CHECKING

from fedpact.report import markup

if TYPE_CHECKING:
    from fedpact.run.promise import Promise, Shown

MANY = 6  # parties of one constraint that are listed; of more, those that were not shown or have the least room


def in_lines(promise: "Promise") -> str:
    lines = [headline(promise), *(f"  {line_of(shown, promise)}" for shown in listed(promise))]
    evaluated = [] if promise.evaluation is None else str(promise.evaluation).splitlines()
    return "\n".join([*lines, *(f"  {line}" for line in (*closing(promise), *evaluated))])


def in_html(promise: "Promise") -> str:
    head = f"<p><b>{markup.text(headline(promise))}</b></p>"
    return head + _table(promise) + "".join(f"<p>{markup.text(markup.sentence(line))}</p>" for line in closing(promise))


def _table(promise: "Promise") -> str:
    if not promise.constraints:
        return ""
    titles = ("constraint", "where", "promised", "shown", "seen", "held-out rows", "")
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{cell}</td>"
            for cell in (
                markup.name(shown.name),
                markup.name(shown.party or "all parties' rows"),
                f"{'≤' if shown.side == 'upper' else '≥'} {markup.number(shown.limit)}",
                f"{'≤' if shown.side == 'upper' else '≥'} {markup.number(shown.bound, 4)}",
                markup.number(shown.observed, 4),
                f"{shown.rows:,}",
                "kept" if shown.kept else markup.text(f"not shown: {why(shown)}"),
            )
        )
        + "</tr>"
        for shown in listed(promise)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def headline(promise: "Promise") -> str:
    if promise.kept:
        count = len(promise.constraints)
        what = "the limit was shown" if count == 1 else f"all {count} limits were shown"
        return f"kept: {what} at confidence {_share(1 - promise.terms.error)}, {asked(promise)}"
    if not promise.result.converged:
        return (
            f"not shown: the candidate is not certified ({promise.result.status}) and was not tested, {asked(promise)}"
        )
    missed = [shown for shown in promise.constraints if not shown.kept]
    names = ", ".join(dict.fromkeys(shown.name for shown in missed))
    return f"not shown: {names} at confidence {_share(1 - promise.terms.error)}, {asked(promise)}"


def asked(promise: "Promise") -> str:
    return {0: "asked never", 1: "asked once"}.get(promise.asked, f"asked {promise.asked} times")


def listed(promise: "Promise") -> list["Shown"]:
    """What is written out of each constraint: everything, or where there are many parties those with the least room."""
    out = []
    for own in dict.fromkeys((shown.name, shown.side) for shown in promise.constraints):
        alike = [shown for shown in promise.constraints if (shown.name, shown.side) == own]
        tightest = sorted(alike, key=lambda shown: shown.margin)[:MANY]
        out += alike if len(alike) <= MANY else tightest
    return out


def line_of(shown: "Shown", promise: "Promise") -> str:
    sign = "<=" if shown.side == "upper" else ">="
    at = f" at {shown.party}" if shown.party is not None else ""
    seen = f"{shown.name}{at}: {sign} {shown.bound:.4f} shown at confidence {_share(promise.confidence_of_each)}"
    seen += f" on {_rows(shown)}"
    return f"{seen}; {'promised' if shown.kept else 'not shown:'} {sign} {shown.limit:g}" + (
        "" if shown.kept else f", {why(shown)}"
    )


def why(shown: "Shown") -> str:
    """What is missing."""
    if shown.outside:
        return f"{shown.outside} held-out rows have values outside the stated range: state a range that holds for every row"
    if math.isnan(shown.observed):
        return "no held-out row is behind it"
    if shown.statement.sign * (shown.observed - shown.limit) > 0:
        return f"the observed value {shown.observed:.4f} itself breaks the limit"
    if math.isinf(shown.rows_needed):
        return f"the observed value {shown.observed:.4f} is too close to the limit for any number of rows"
    return f"about {shown.rows_needed:,} held-out rows would have been needed at the observed value"


def closing(promise: "Promise") -> list[str]:
    lines = []
    if not promise.result.converged:
        lines.append(f"the candidate, trained with tightened limits: {promise.result.message}")
        lines.append("without a test no confidence is spent")
    count = len(promise.constraints)
    if count > 1:
        lines.append(
            f"the error {_share(promise.terms.error)} is split over {count} bounds (Bonferroni): "
            f"each holds at confidence {_share(promise.confidence_of_each)}, all of them at {_share(1 - promise.terms.error)}"
        )
    if promise.asked > 1 and count:
        lines.append(
            f"these held-out rows were asked {promise.asked} times: this time at confidence {_share(1 - promise.terms.error)}, "
            f"all times together at {_share(promise.confidence_of_all)}"
        )
    rows = sum(promise.held_out.values())
    lines.append(
        f"{rows:,} rows were held out at {markup.plural(len(promise.held_out), 'party')}; it is said of people drawn like these "
        "rows, and of no others"
    )
    return lines


def _rows(shown: "Shown") -> str:
    rows = " and ".join(f"{rows:,}" for _, rows in shown.counts)
    seen = "" if math.isnan(shown.observed) else f" (observed {shown.observed:.4f})"
    return f"{rows} held-out rows{seen}"


def _share(share: float) -> str:
    return f"{share:.6g}"
