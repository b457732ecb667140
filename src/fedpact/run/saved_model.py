"""From what a run hands out to a model that can leave it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedpact import __about__
from fedpact.certificate import Certificate, ConstraintReport
from fedpact.federation.table import INPUTS
from fedpact.prediction.describe import describe, named
from fedpact.prediction.forms import NoForm, OwnForm, SplitForm
from fedpact.prediction.own_code import scored_with
from fedpact.prediction.predictor import Predictor
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.problem.decision_rule import DecisionRule
from fedpact.problem.fingerprint import digest
from fedpact.problem.models import Model
from fedpact.problem.split import TOP, SplitModel
from fedpact.problem.statement import Problem
from fedpact.report import promised
from fedpact.tolerance import Tolerance

if TYPE_CHECKING:
    from fedpact.run.result import Result

MODEL = "model"  # the folder of the model in that of a run
Y = "y"  # the column of labels that a recipe makes
NUMBERS = ("stationarity", "feasibility", "complementarity")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a party is told of the end of a run, for its own model or part.

    - `threshold`: of decisions, where the run moved it; None where it is the problem's own.
    - `numbers`: the tolerance, and the certificate's stationarity, feasibility and complementarity; no party's own values.
    """

    status: str
    threshold: float | None
    numbers: dict[str, Any]

    @classmethod
    def of(cls, result: "Result") -> "Outcome":
        numbers = {name: _finite(getattr(result.certificate, name)) for name in NUMBERS}
        return cls(result.status, result.threshold, {"tolerance": result.tolerance, **numbers})

    @classmethod
    def read(cls, words: Any) -> "Outcome":
        """From a message. Raises ValueError where it is not of this form."""
        if not isinstance(words, dict) or set(words) != {field.name for field in dataclasses.fields(cls)}:
            raise ValueError("it does not say how the run ended")
        outcome = cls(**words)
        numbers = outcome.numbers if isinstance(outcome.numbers, dict) else {}
        known = isinstance(outcome.status, str) and set(numbers) == {"tolerance", *NUMBERS}
        plain = (outcome.threshold, *(numbers.get(name) for name in NUMBERS))
        if not known or not all(isinstance(x, float | None) for x in plain):
            raise ValueError("what it says of the end of the run is no status with a few numbers")
        Tolerance.of(numbers["tolerance"], "the end of the run")
        return outcome

    def words(self) -> dict[str, Any]:
        """For a message."""
        return dataclasses.asdict(self)


def reads_features(problem: Problem) -> bool:
    """Whether the model reads the column "x", whose features tables have names for."""
    return problem.model is not None and getattr(problem.model, "inputs", INPUTS) == INPUTS


def predictor_of(result: "Result") -> Predictor:
    """The model of a result, with the parties' own models or parts where they are in this process."""
    problem, model, params = result.problem, result.problem.model, result.params
    features, recipe = result.features, result.recipe
    recipes = recipe if isinstance(recipe, dict) else dict.fromkeys(result.parties, recipe)
    if isinstance(recipe, dict):  # over columns each party has its own; labels are read by that of their holder
        recipe = next((own for own in recipe.values() if own.label is not None), None)
    by_party = features if isinstance(features, dict) else dict.fromkeys(result.parties, features)
    split = "columns" if isinstance(model, SplitModel) else "rows" if result.average is None else "personal"
    parts: dict[str, Predictor] = {}
    outcome = Outcome.of(result)
    if isinstance(model, SplitModel) and result.widths:
        bottoms = {name: model.bottom_for(width) for name, width in result.widths.items()}
        parts = {
            name: part_of(
                problem, bottom, params[name], name, result.parties, outcome, by_party[name], recipes.get(name)
            )
            for name, bottom in bottoms.items()
        }
    elif result.unprojected is not None:
        parts = {
            name: part_of(problem, model, params[name], name, result.parties, outcome, by_party[name], recipe)
            for name in result.unprojected
        }
    shared = params.get(TOP, {}) if split == "columns" else result.average if split == "personal" else params
    return Predictor(
        **_trained(model, shared),
        rule=_rule(problem, result.threshold, recipe),
        features=None if isinstance(features, dict) else features,
        recipe=None if split == "columns" else recipe,
        status=result.status,
        message=result.message,
        certificate=_certificate(result),
        problem=str(problem),
        digest=result.digest,
        version=__about__.VERSION,
        run={"method": result.method, "rounds": result.rounds, "ended": result.ended},
        split=split,
        parties=result.parties,
        parts=parts,
    )


def part_of(
    problem: Problem,
    model: Model | None,
    params: Any,
    party: str,
    parties: Sequence[str],
    outcome: Outcome,
    features: tuple[str, ...] | None,
    recipe: AgreedRecipe | None,
) -> Predictor:
    """A party's own model, or over columns its part: what that party may know, and nothing of others' values."""
    over_columns = isinstance(problem.model, SplitModel)
    return Predictor(
        **_trained(model, params),
        rule=None if over_columns else _rule(problem, outcome.threshold, recipe),
        features=features,
        recipe=recipe,
        status=outcome.status,
        message="",
        certificate=dict(outcome.numbers),
        problem=str(problem),
        digest=digest(problem.public),
        version=__about__.VERSION,
        run={},
        split="columns" if over_columns else "personal",
        parties=tuple(parties),
        party=party,
    )


def _trained(model: Model | None, params: Any) -> dict[str, Any]:
    """The form, the parameters by name, and the user's code where it is that."""
    arrays = named(params)
    if model is None:
        return {"form": NoForm("no model"), "params": arrays}
    form, own = describe(model), None
    if isinstance(form, OwnForm):
        own = scored_with(model, params)
    elif isinstance(model, SplitModel) and isinstance(form, SplitForm) and isinstance(form.top, OwnForm):
        assert model.top is not None
        own = scored_with(model.top, params)
    return {"form": form, "params": arrays, "own": own}


def _rule(problem: Problem, threshold: float | None, recipe: AgreedRecipe | None) -> DecisionRule | None:
    """How scores decide, with the labels of the recipe's frames where it made those that the loss reads."""
    try:
        rule = DecisionRule.of(problem, threshold)
    except ValueError:
        return None
    labels = None if recipe is None else recipe.labels
    read = [loss.label for loss in problem.losses if loss.classifies is not None]
    if labels is None or (read and read[0] != Y):
        return rule
    if rule.by_class:
        return dataclasses.replace(rule, classes=labels)
    negative, positive = (labels[int(place)] for place in rule.labels)
    return dataclasses.replace(rule, labels=(negative, positive))


def _certificate(result: "Result") -> dict[str, Any]:
    """The certificate as text and numbers; None in place of what is not finite."""
    certificate: Certificate = result.certificate
    kinds, within = promised.kinds(result.problem), Tolerance.of(result.tolerance)
    numbers = {name: _finite(getattr(certificate, name)) for name in (*NUMBERS, "objective")}
    constraints = [_constraint(report, within.feasibility, kinds) for report in certificate.constraints]
    words = promised.in_lines(certificate, kinds, within.feasibility, result.converged)
    return {"tolerance": result.tolerance, **numbers, "constraints": constraints, "words": words}


def _constraint(report: ConstraintReport, tolerance: float, kinds: dict[str, str]) -> dict[str, Any]:
    def by_holder(numbers: Sequence[float]) -> dict[str, float | None]:
        return dict(zip(report.holders, map(_finite, numbers), strict=True))

    return {
        "name": report.name,
        "bound": report.bound,
        "scope": report.scope,
        "kind": promised.kind_of(report, kinds),
        "values": by_holder(report.values),
        "margins": by_holder(report.margins),
        "multipliers": by_holder(report.multipliers),
        "broken": any(report.is_broken(holder, tolerance) for holder in range(len(report.holders))),
    }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
