"""The evaluation at the end of a deployed run: where rows are split the parties count, over columns the label holder does."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpact.deploy.party_run import parameters_layout
from fedpact.engines.remote import Link, PartyRefused
from fedpact.engines.serialization import HEADER
from fedpact.evaluation.counts import MOST_GROUPS, Counts, Question, all_groups, count_rows, read_groups
from fedpact.evaluation.table import ALL, Evaluation
from fedpact.federation.table import Table
from fedpact.problem.split import EMBEDDED, TOP
from fedpact.run import drivers
from fedpact.run.evaluate import checked
from fedpact.run.loop import Run
from fedpact.run.pact import Pact
from fedpact.run.result import Result
from fedpact.settings.columns import EMBED


def labels_at_server(pact: Pact) -> Table | None:
    """The label holder's table, checked before the first round; None where nothing is evaluated here."""
    if pact.evaluate is None or not pact.columns:
        return None
    labels = pact.server_table() or pact.table(pact.active[0])
    pact.question().check_columns(pact.active[0], labels)
    return labels


def evaluate_at_parties(
    pact: Pact, link: Link, run: Run, result: Result, labels: Table | None, told: Mapping[str, Any]
) -> Evaluation:
    """What the pact's `evaluate` asks for, at the answer of a run that has ended.

    - `told`: where counts are added up in secret, what each party told of its groups before the run.

    Raises PartyLost where a party stays away, or does not answer the question.
    """
    question = pact.question(result.threshold)
    if labels is not None:
        counts = {pact.active[0]: _over_columns(pact, run, result, labels, question)}
    else:
        counts = _over_rows(link, run, result, question, told if pact.hides_counts else None)
    return checked(Evaluation(counts, question, float(pact.confidence)))


def groups_told(told: Mapping[str, Any], question: Question) -> tuple[list[Any], list[Any]]:
    """The groups of all parties, and those that somebody withholds. Raises PartyRefused for words that are none."""
    read = {}
    for party, words in told.items():
        try:
            read[party] = read_groups(words, question)
        except ValueError as error:
            raise PartyRefused(party, f"what it tells of its groups is refused: {error}") from None
    groups, withheld = (all_groups(each[part] for each in read.values()) for part in (0, 1))
    return groups, withheld


def _over_columns(pact: Pact, run: Run, result: Result, labels: Table, question: Question) -> Counts:
    """Scores come together at the label holder, as in a round."""
    embedded, _ = drivers.run_phases((EMBED,), run.network, run.own, run.answer, run.kept)
    model = pact.problem.model
    assert model is not None
    scores = np.asarray(model.apply(result.params.get(TOP, {}), {EMBEDDED: embedded}))
    return count_rows(pact.active[0], labels, scores, question)


def _over_rows(
    link: Link, run: Run, result: Result, question: Question, told: Mapping[str, Any] | None
) -> dict[str, Counts]:
    """Every party counts; the largest answer has all groups that there may be. Where parties `told` groups, sums are known."""
    w = np.asarray(run.bound.shape.ravel(result.params))
    layout = parameters_layout(w.size)
    words = {
        "kind": "evaluate",
        "versions": link.versions(int(run.kept.version)),
        "threshold": float(question.threshold),
    }
    if told is not None:
        groups, withheld = groups_told(told, question)
        specs = Counts.specs(len(groups), question)
        sums, _ = link.ask_sums({**words, "groups": groups}, layout.by_name(w), specs)
        return {ALL: Counts.read({"groups": groups, "withheld": withheld}, sums, question)}
    most = HEADER + 8 * MOST_GROUPS * (2 * question.bins + 12)
    counts = {}
    for party, (header, arrays) in link.ask_all(words, layout.by_name(w), most).items():
        try:
            counts[party] = Counts.read(header, arrays, question)
        except ValueError as error:
            raise PartyRefused(party, f"its evaluation is refused: {error}") from None
    return counts
