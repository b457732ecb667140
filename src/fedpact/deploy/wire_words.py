"""What the fields of messages are in plain words, and what they reveal to whoever gets them: the vocabulary of `fedpact wire`.

A field is looked up by the end of its name ("units.parameters", then "parameters"), where it means something else in one step by
"step: name". A field of a method of your own that is not here is called by its name.
"""

import re
from collections.abc import Mapping
from typing import Literal

# How a field gets to its reader. Of replies: sum, max, each; of messages to parties: answer, labels; of both: no values.
Kind = Literal["sum", "max", "each", "answer", "labels", "no values"]

ONE_PARTY, POWER, NOTHING = "one party", "a power of two", "nothing"


def reveals(kind: Kind, secure: bool, parties: int) -> str:
    """Whose rows a field tells of.

    - `kind`: "sum", "max": of a reply, added up or maximised over parties; "each": of a reply, kept apart by party; "answer":
      sent to parties, computed from all replies; "labels": sent to parties, one number for each row that depends on its label;
      "no values": keys, ciphertexts and the like.
    - `secure`: whether replies are added up in secret; without, the server receives every party's reply by itself.
    - `parties`: how many are added up.
    """
    if kind == "no values":
        return NOTHING
    if kind in ("each", "labels") or parties == 1 or (kind != "answer" and not secure):
        return ONE_PARTY
    if kind == "answer":
        return f"all {parties} parties together"
    return f"a sum over {parties} parties" if kind == "sum" else POWER


def words_for(name: str, step: str, table: Mapping[str, str]) -> str | None:
    """A field's words. `name`: with dots, as "units.parameters"; `step`: what the party does with it or sends it after."""
    parts = re.sub(r"\[\d+\]$", "", name).split(".")  # of several alike
    ends = [".".join(parts[at:]) for at in range(len(parts))]
    return next((table[key] for end in ends for key in (f"{step}: {end}", end) if key in table), None)


STEPS = {
    "look_at_start": "look at the starting point, to learn units",
    "join": "begin",
    "step": "compute on its own rows at the point it gets",
    "keep own part of the answer": "keep its own part of the answer",
    "measure_at_party": "measure the certificate on its own rows",
    "release": "compute objective and limits on its own rows, clipped and with noise",
    "measure_privately": "measure the certificate on its own rows, clipped and with noise",
    "measure_hidden_at_party": "measure the certificate on its own rows",
    "count": "count decisions on its own rows",
    "count_shifted": "count decisions at other thresholds",
    "settle": "move its limits by what was counted",
    "pull": "say whether its limits can be met at all",
    "estimates and gradients": "compute on a batch of its own rows",
    "estimate and gradients": "compute on a batch of its own rows",
    "functions and gradients": "compute objective and limits on all of its own rows",
    "values": "compute its limits on all of its own rows",
    "embed": "compute outputs for rows",
    "embed_start": "compute outputs for rows at the starting point",
    "embed_all": "compute outputs for all rows",
    "embed_all_rows": "compute outputs for all rows, for the certificate",
    "differentiate": "improve its part of the model on the batch",
    "descend": "improve its part of the model on the batch",
    "block_residual": "measure the certificate for its part of the model",
    "send_model": "send its own model, for the certificate",
    "gradient_at_mean": "measure the certificate at the mean of all models",
    "own_residual": "measure the certificate for its own model",
    "largest_residual": "measure the certificate for its own model",
    "active": "improve its part of the model, with labels",
    "passive": "improve its part of the model, without labels",
    "keep_key": "keep the server's public key",
    "multiply": "compute its gradient under encryption",
    "passive_unmasked": "take its own mask off and improve its part of the model",
    "evaluate": "compute on its own rows at the points it gets",
    "project": "move its own model, within its own set",
}

UP = {
    # objective, limits, their slopes
    "objective": "its part of the objective",
    "value": "its part of what the round lowers",
    "value_gradient": "the gradient of its part of what the round lowers",
    "values": "objective and limits, on a batch of its rows",
    "functions and gradients: values": "its part of objective and limits",
    "functions and gradients: gradients": "gradients of its part of objective and limits",
    "next_objective": "its part of the objective at the next point",
    "gradient": "the gradient of its part of the objective",
    "pull: gradient": "gradients of its limits, weighted by how much their multipliers grew",
    "gradients": "gradients of objective and limits, on a batch of its rows",
    "lagrangian_gradient": "the gradient of its objective and its limits together",
    "hessian": "the Hessian of its objective and its limits",
    "hessian_diagonal": "the diagonal of the Hessian of its objective",
    "curvature": "the curvature of its objective along its gradient",
    "constraints": "the value of each of its limits",
    "multipliers": "the multiplier of each of its limits",
    "party_objective": "its part of the objective",
    "constraint_gradient": "the gradients of its limits, weighted by their multipliers",
    "constraint_slopes": "squares of its limits' gradients, entry by entry",
    "constraint_units": "the size of its limits, for units",
    "gradient_change": "gradients of its limits, weighted by the next change of their multipliers",
    "squared_slope": "the squared gradient of its steepest limit",
    "weighted_violation": "its limits' values, weighted by their multipliers",
    "pull: weighted_violation": "its limits' values, weighted by how much their multipliers grew",
    "violation": "by how much its limits are broken at most",
    "count_shifted: violation": "by how much its counted limits are broken at most, for each threshold",
    "complementarity": "the largest room of a limit with a multiplier",
    "measure_hidden_at_party: multipliers": "the size of the multiplier of each of its limits",
    "measure_hidden_at_party: violation": "by how much each of its limits is broken",
    "measure_hidden_at_party: gap": "the room of each of its limits that has a multiplier",
    "measure_hidden_at_party: negative": "how far the multiplier of each of its limits is below 0",
    "measure_hidden_at_party: counted": "by how much each of its limits is broken, with decisions counted",
    "pooled_constraints": "its part of the limits over all parties' rows",
    "pooled": "its part of the limits over all parties' rows",
    "count_shifted: pooled": "its part of the counted limits over all rows, for each threshold",
    "pooled_jacobian": "the gradients of its part of the limits over all rows",
    # interior points
    "right_hand_side": "gradients of its limits, weighted: first part of the step",
    "right_hand_side_barrier": "gradients of its limits, weighted: second part of the step",
    "right_hand_side_residual": "gradients of its limits, weighted: third part of the step",
    "multiplier_sum": "the sum of its multipliers",
    "multiplier": "its largest multiplier",
    "multiplier_after_full_step": "its largest multiplier after a full step",
    "multiplier_change": "the largest change of its multipliers",
    "merit_before.log_barrier": "logarithms of the room within its limits, before the step",
    "merit_before.residual": "by how much its limits are missed, before the step",
    "merit_slope.log_barrier": "how these logarithms change along the step",
    "merit_slope.residual": "how what is missed changes along the step",
    "merit_after.log_barrier": "logarithms of the room within its limits, after the step",
    "merit_after.residual": "by how much its limits are missed, after the step",
    "augmented_increase": "by how much the penalty on its limits grew",
    "slack_products": "the room within its limits times their multipliers",
    "slack_decrease": "how fast the room within its limits shrinks along the step",
    "inequalities": "how many limits it has",
    # counts
    "counted": "its limits with decisions counted on its rows",
    "counted.objective": "its part of the objective with decisions counted",
    "counted.pooled_constraints": "its part of the limits over all rows, with decisions counted",
    "smooth": "the same limits with decisions smoothed",
    "strictest": "how far the smoothed limits can go at most",
    "inside": "by how much its counted limits are met at least",
    "missed": "by how much the smoothed limits are missed at most",
    "others": "by how much its limits without decisions are broken at most",
    "pooled_jumps": "what one row counts in a limit over all rows, which tells their number",
    "correction": "by how much its smoothed limits were moved",
    # models
    "parameter_change": "the change of the model by its own steps, weighted",
    "weight": "its weight, which tells its share of the rows",
    "pull: weight": "the sum of the weights of its broken limits",
    "control_variate_change": "the change of its mean gradient",
    "parameters": "its own model",
    "own_block": "its own model, as far as it moved by itself",
    "update.drift": "the part of its move that it shares with all",
    "update.share": "how much of its move it shares with all",
    "trial": "its own model at the trial",
    "slope_along_step": "how the objective changes along its step",
    "squared_length": "the squared length of its step",
    "largest_step_entry": "the largest entry of its step",
    "uphill": "whether its momentum leads uphill",
    "distance_to_set": "the distance of its own model from its own set",
    "stationarity": "how far its own part is from optimal",
    "local_solution": "its local solution and its own multipliers, added",
    "residual": "how exactly it solved its local problem",
    "distance_squared": "its squared distance from the common point",
    "acceleration_products": "products of its last steps, to speed up",
    "q": "sums over a batch of its rows of what a surrogate of the pact reads of each",
    # columns
    "embedding": "the output of its part of the model, for each row",
    "squared_norm": "the squared length of its part of the parameters",
    "inner_products": "products of its parameters and its last steps",
    "regularizer": "the regulariser of its part of the parameters",
    "outside_box": "how far its part of the parameters is outside the bounds",
    "gradient_entry": "the largest entry of its gradient",
    "largest_gradient_entry": "the largest entry of its gradient",
    "gradient_times_parameters": "its gradient times its parameters",
    "slope_products": "products of its gradients",
    "encrypted_masked_gradient": "its gradient under a mask of its own, encrypted",
    "party": "its place in the pact",
}

DOWN = {
    # points
    "parameters": "the model's parameters",
    "centre": "the parameters that the subproblem is about",
    "direction": "the direction of the step",
    "step_length": "the length of the step",
    "step_size": "the size of a step",
    "local_steps": "how many steps to take",
    "descent": "a direction in which the objective falls without end, if there is one",
    "trial_mean": "the mean of all models at the trial",
    "next_mean": "the mean of all models at the next point",
    "mean": "the mean of all models",
    "momentum": "the weight of the last step",
    "gradient": "the gradient at the mean of all models",
    "objective": "the objective at the mean of all models",
    "control_variate": "the mean gradient of all parties",
    "last_update.drift": "the move that all share, from the last round",
    "last_update.share": "how much of the last round's moves was shared",
    "use_best": "whether to keep the best point so far",
    "top_parameters": "the parameters of the top model",
    # limits
    "pooled_multipliers": "the multipliers of limits over all rows",
    "server_multipliers": "the multipliers of the server's own limits",
    "pooled_multiplier_changes": "the changes of the multipliers of limits over all rows",
    "dual.multipliers": "the multipliers of limits over all rows",
    "penalty": "the weight of broken limits",
    "merit_weight": "the weight of missed limits",
    "barrier_parameter": "how far to stay within the limits",
    "first_slack": "the room that limits begin with",
    "steepness": "how steep the objective has become since the start",
    "residual_share": "the share of what is missed that the step is to close",
    "activity_threshold": "the room below which a limit counts as reached",
    "infeasible_radius": "how far there is no point within all limits, if that is known",
    # units
    "units.parameters": "units of the parameters",
    "units.objective": "unit of the objective",
    "units.constraints": "units of the limits",
    "units.party_constraints": "units of the parties' limits",
    "units.pooled_constraints": "units of the limits over all rows",
    "units.server_constraints": "units of the server's limits",
    # flow
    "accepted": "whether the last trial stands",
    "moving": "whether there is a step",
    "searching": "whether a point within the limits is searched for",
    "best": "whether the last trial is the best so far",
    "new_subproblem": "whether a new subproblem begins",
    "prox_length": "how far the subproblem reaches",
    "tolerance": "the tolerance, which violations are told in",
    "inner.accuracy": "how exactly to solve the local problem",
    "inner.penalty": "the weight of the distance from the common point",
    "inner.restart": "whether to begin the local problem afresh",
    "acceleration_weights": "weights of the last steps, to speed up",
    "acceleration_slot": "which of the last steps is replaced",
    "averaging_weight": "the weight of this batch among the last ones",
    "diverged": "whether the run has diverged",
    "random_key": "a random key, by which rows of a batch are drawn",
    # counts
    "softening": "how much decisions are smoothed",
    "rates.anchored": "whether the last point may be returned to",
    "rates.returning": "whether the step begins at that point",
    "rates.relaxation": "how far limits are moved, within the tolerance",
    "shifts": "thresholds to count at",
    "threshold_shift": "by how much the threshold was moved",
    "correct": "whether limits are moved by what was counted",
    "way": "in which way they are moved",
    "keep": "whether what was counted is the best so far",
    "restore": "whether to go back to the best so far",
    "settle: pooled": "by how much limits over all rows were moved",
    "corrections.pooled": "by how much limits over all rows were moved",
    "corrections.server": "by how much the server's limits were moved",
    # columns
    "block_residual: gradient": "for each row the derivative of the loss: its sign is the label",
    "descend: gradient": "for each row of the batch the derivative of the loss: its sign is the label",
    "differentiate: gradient": "for each row of the batch the derivative of the loss: its sign is the label",
    "residuals": "for each row the derivative of the loss: its sign is the label",
    "norm_derivative": "the weight of the parameters' squared length",
    "ridge": "the weight of the parameters' squared length",
    "curvature": "the curvature that steps assume",
    "point.embedding": "for each row the sum of all parties' outputs",
    "point.squared_norm": "the squared length of all parameters",
    "proposal_weight": "how much of the proposed step is taken",
    "last_move_weights": "how much of the last steps is repeated",
    "move.keep_as_best": "whether the last point is the best so far",
    "surrogate_weights": "weights of objective and limits",
    "encrypted_residuals": "for each row the derivative of the loss, encrypted",
    "masked_gradients": "each party's gradient under its own mask",
    "public_key": "the server's public key",
}

LABELS = {"residuals", "block_residual: gradient", "descend: gradient", "differentiate: gradient"}  # of DOWN
NO_VALUES = {
    "random_key",
    "public_key",
    "encrypted_residuals",
    "masked_gradients",
    "encrypted_masked_gradient",
    "party",
}

GLOSSARY = {
    "gradient": "the sum over a party's rows of each row's pull on the model. That of a few rows can tell the rows.",
    "Hessian": "products of columns, summed over a party's rows. A server that sees it from one party alone can compute "
    "that party's rows from two rounds, where there are no more rows than parameters.",
    "limit": "a constraint of the problem.",
    "multiplier": "how strongly a limit pulls on the model; 0 where it does not bind.",
    "for each row": "one number for every row: whoever gets it can follow single rows through the run.",
}


def kind_of(name: str, step: str, part: str) -> Kind:
    """How a field gets to its reader. `part`: ".sum", ".max", ".per_party", or "" for messages to parties."""
    last = name.split(".")[-1]
    if last in NO_VALUES:
        return "no values"
    if part:
        return "sum" if part == ".sum" else "max" if part == ".max" else "each"
    return "labels" if last in LABELS or f"{step}: {last}" in LABELS else "answer"
