"""The interior-point method as it runs, at parties and server; formulas and symbols are in `method.py`."""

import dataclasses
from typing import TYPE_CHECKING

import jax

from fedpact.algorithms.interior_point.barrier import (
    TINY,
    Barrier,
    HolderMaxima,
    Trial,
    evaluate,
    maxima,
    with_pooled,
)
from fedpact.algorithms.interior_point.kappa import ROUGH, held_kappa, next_kappa
from fedpact.algorithms.interior_point.sharpening import Anchor, Best, Change, at_first, changed
from fedpact.algorithms.interior_point.standing import AGAIN, LEAST_OBJECTIVE, SHRINKS, Trialled, standing, steepness
from fedpact.algorithms.interior_point.state import PartyState, RoundInfo, ServerState
from fedpact.algorithms.interior_point.steps import (
    Model,
    Step,
    first_step,
    nearer,
    newton_step,
    promised,
    standstill,
    whole_step,
)
from fedpact.algorithms.interior_point.trial import held, trial_of
from fedpact.arrays import choose, cond, linalg, xp
from fedpact.problem.oracle import Oracle
from fedpact.protocol import ring
from fedpact.protocol.algorithm import (
    Answer,
    Begin,
    Disclosed,
    FirstParameters,
    OnePhase,
    Status,
)
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import ServerData

if TYPE_CHECKING:
    from fedpact.algorithms.interior_point.method import InteriorPoint

SAME = 1e-15  # relative difference of parameters that went through other units and back
CONVEX = 1e-12  # of its diagonal: curvature this little below zero is rounding
ARMIJO = 1e-4
ROUNDING = 1e-12  # relative noise in the merit
CREDIT = 40  # steps that may be taken because they lower the augmented Lagrangian, though not the merit
FARTHEST = 1e8  # iterates this large, relative to the start, mean that the objective has no minimum
NUDGE = 1e-2  # a start where broken constraints have no slope is left by this, relative to 1 + |w|
ROUGHLY_MET = 1e-3  # constraints of a problem with softened rates are met to this before they are sharpened,
ROUGHLY_SOLVED = 0.1  # and the next step promises less than this part of ROUGH
STAY_FEASIBLE = (
    300.0  # the merit's weight of the violation, per unit of the objective, at a point that was searched for
)
STEEPEST = 1e5  # an objective that is steeper counts as this
WAITED = 4  # rounds in which the squared violation has not fallen by 4 %, before a search looks far away
WIDER = 4.0  # the ball grows by this after an accepted step


class InteriorPointMethod(OnePhase[ServerState]):
    """InteriorPoint as it runs."""

    options: "InteriorPoint"
    rates: bool  # whether smooth rates are among the problem's functions

    @property
    def few_rounds(self) -> bool:
        return True

    # at a party

    def join(self, own: Oracle, state: None, message: FirstParameters) -> tuple[PartyState, Reply]:
        """Before the first round: s = 1, which the first evaluation widens to the room that there is."""
        fresh = Barrier.fresh(own.equality, message.parameters.size, self.options.mu)
        anchor = fresh if self.rates else None
        return PartyState(fresh, fresh, anchor, message.parameters, fresh.active), Reply()

    def step(self, own: Oracle, state: PartyState, message: Trial) -> tuple[PartyState, Reply]:
        size, soft = message.parameters.size, 1.0 if message.rates is None else message.rates.softening
        fresh = Barrier.fresh(own.equality, size, soft * self.options.mu, message.first_slack / soft, message.steepness)
        here, anchor = choose(message.moving, choose(message.accepted, state.there, state.here), fresh), None
        if message.rates is not None:
            anchor = choose(message.rates.anchored, state.there, state.anchor)
            here = choose(message.rates.returning, anchor, here)
        there, sums, largest = evaluate(own, here, message)
        c = there.c if message.rates is None else there.c + xp.where(own.equality, 0.0, message.rates.relaxation)
        disclosed = own.disclose(Disclosed(c, there.active, sums.objective))
        best = xp.where(message.best, state.there.active, state.best)
        return PartyState(here, there, anchor, message.parameters, best), Reply(sums, largest, disclosed)

    def multipliers(self, own: Oracle, state: PartyState, answer: Answer) -> jax.Array:
        tried = xp.all(xp.abs(state.trial - answer.parameters) <= SAME * xp.abs(state.trial))
        return xp.where(tried, state.there.active, state.best)

    # at the server

    def invite(self, own: ServerData, begin: Begin) -> FirstParameters:
        return FirstParameters(own.regularizer.prox(begin.w, 0.0))

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> ServerState:
        w = self.invite(own, begin).parameters
        mine = Barrier.fresh(own.functions.equality, w.size, self.options.mu)
        pooled = Barrier.fresh(own.functions.pooled_equality, w.size, self.options.mu)
        nothing, endless, flat = xp.asarray(0.0), xp.asarray(xp.inf), xp.zeros_like(w)
        nothing_yet = Best(w, endless, endless, mine.active, pooled.active)
        return ServerState(
            w=w,
            step=first_step(w),
            model=Model(endless, flat, flat, flat, xp.zeros((w.size, w.size)), xp.asarray(True)),
            kappa=nothing,
            rho=nothing,
            accepted=xp.asarray(True),
            own=(mine, mine),
            pooled=(pooled, pooled),
            best=nothing_yet,
            best_is_trial=xp.asarray(False),
            searching=xp.asarray(False),
            phases=xp.zeros((), int),
            fresh=xp.asarray(True),
            steepness=xp.asarray(1.0),
            origin=w,
            first_violation=nothing,
            from_start=xp.asarray(False),
            repeated=xp.asarray(False),
            indefinite=xp.asarray(False),
            idle=xp.zeros((), int),
            least_violation=endless,
            phase_rounds=xp.zeros((), int),
            first_search=endless,
            sharpening=at_first(own.coldest_rate, Anchor(w, mine, pooled), nothing_yet) if self.rates else None,
            empty_radius=nothing,
            promising=xp.asarray(False),
            shrinkage=xp.asarray(SHRINKS),
            descent=flat,
            reach=FARTHEST * (1.0 + xp.max(xp.abs(w))),
            credit=xp.asarray(CREDIT),
            goal=begin.goal,
            status=Status.running.as_array(),
        )

    def ask(self, own: ServerData, server: ServerState) -> Trial:
        return trial_of(self.options.mu, own, server)[0]

    def hear(self, own: ServerData, server: ServerState, reply: Reply) -> tuple[ServerState, RoundInfo]:
        step, goal, first, searching = server.step, server.goal, server.fresh, server.searching
        h = choose(searching, own.regularizer.box_only(), own.regularizer)
        trial, pooled, ahead = trial_of(self.options.mu, own, server)
        point, equality = trial.parameters, own.functions.pooled_equality
        anchor = server.sharpening and server.sharpening.anchor.own
        here = held(self.options.mu, server, server.own, own.functions.equality, anchor)
        there, total, every = here, reply.sum, [reply.max]
        if own.functions.is_constant and not own.functions.equality.size:
            values = own.functions(point)
            pooled_sum = total.pooled_constraints + values.pooled
            total = dataclasses.replace(
                total, objective=total.objective + values.objective, pooled_constraints=pooled_sum
            )
        else:
            there, mine, own_largest = evaluate(own.functions, here, trial)
            mine = dataclasses.replace(mine, hessian=mine.hessian.alone())
            total, every = jax.tree.map(xp.add, total, mine), [*every, own_largest]
        pooled_there, sums, hessian = with_pooled(total, pooled, ahead, equality, trial, own.regularizer, h)
        if equality.size:
            every.append(maxima(ahead, pooled_there, equality, trial))
        exact: HolderMaxima = jax.tree.map(lambda *x: xp.max(xp.stack(x)), *every) if every[1:] else every[0]
        maxima_at_all, names = jax.tree.flatten(exact)
        powers = ring.power_above(
            xp.stack(maxima_at_all)
        )  # all that secure sums tell: so the path is the same without them
        largest = jax.tree.unflatten(names, list(powers)).times(goal.feasibility)

        # what the trial is worth
        stationarity = own.regularizer.distance(point, sums.gradient + sums.constraint_gradient)
        objective = sums.objective + own.regularizer.nonsmooth(point)
        right = sums.right_hand_side + sums.right_hand_side_barrier + sums.right_hand_side_residual
        sound = xp.isfinite(sums.objective + xp.sum(sums.gradient + right) + xp.sum(hessian))

        # is it better than where the step began?
        model, rho = server.model, xp.fmax(server.rho, 2.0 * largest.multiplier_after_full_step)
        violation_squared = 0.5 * sums.weighted_violation  # ψ, while searching
        height = xp.where(searching, violation_squared, objective)
        slope = step.length * model.slope @ step.direction + h.nonsmooth(point) - h.nonsmooth(server.w)
        before, after, slope = (
            part + xp.where(searching, 0.0, terms)
            for part, terms in (
                (model.objective, sums.merit_before(rho)),
                (height, sums.merit_after(rho)),
                (slope, step.length * sums.merit_slope(rho)),
            )
        )
        slope = xp.minimum(slope, 0.0)
        noise = ROUNDING * (xp.where(searching, 0.0, 1.0) + xp.abs(before))
        enough = after <= before + ARMIJO * slope + noise
        lowers = objective + sums.augmented_increase < model.objective
        trusted = ~enough & (server.credit > 0) & lowers & ~searching
        again = False if server.sharpening is None else server.sharpening.again
        better = first | again | (sound & (enough | trusted))

        def onward() -> tuple[jax.Array, Step, Model, jax.Array, jax.Array]:
            convex = xp.isfinite(linalg.cholesky(hessian + CONVEX * xp.diag(xp.diag(hessian)))[-1, -1])
            residual = xp.where(searching, 0.0, sums.right_hand_side_residual)
            downhill = xp.where(searching, sums.constraint_gradient, sums.gradient)

            def towards(kappa: jax.Array) -> tuple[Model, Step]:
                gradient = sums.gradient + sums.right_hand_side + kappa * sums.right_hand_side_barrier
                gradient = xp.where(searching, sums.constraint_gradient, gradient)
                model = Model(height, downhill, gradient, residual, hessian, convex)
                return model, newton_step(point, model, WIDER * step.radius, h)

            gained = promised(server.w, server.step, server.model, h)
            kappa = next_kappa(self.options.centering, server, sums, largest, stationarity, gained)
            if self.rates:
                before, again = towards(server.kappa)
                kappa = held_kappa(kappa, server, promised(point, again, before, h), sums)
            kappa = xp.where(searching, server.kappa, kappa)
            fresh, ahead = towards(kappa)
            less = xp.maximum(0.5 * rho, 2.0 * largest.multiplier)
            pull = xp.where(searching, sums.constraint_gradient, residual)
            flat = first & (largest.violation > goal.feasibility) & (xp.max(xp.abs(pull)) <= TINY)
            flat = flat & ~(searching & (h.kinks == "none"))
            aside = h.prox(point + NUDGE * (1.0 + xp.abs(point)) * xp.cos(xp.arange(1.0, 1.0 + point.size)), 0.0)
            return point, choose(flat, whole_step(point, aside), ahead), fresh, kappa, less

        def back() -> tuple[jax.Array, Step, Model, jax.Array, jax.Array]:
            rise = after - before - slope
            factor = xp.clip(-0.5 * slope / xp.where(rise > 0, rise, xp.inf), 0.1, 0.5)
            factor = xp.where(xp.isfinite(after), factor, 0.1)
            nearby = nearer(server.w, server.step, model, factor, largest.slack_decrease, searching, h)
            return server.w, nearby, model, server.kappa, rho

        w, step, model, kappa, weight = cond(better, onward, back)

        now = Trialled(point, objective, stationarity, noise, better, sound, w, step, model)
        stands = standing(server, now, sums, largest, own.regularizer, h)
        status, violation = stands.status, largest.violation
        if h.kinks == "none" and not self.rates:
            # the least violation of convex constraints may be at infinity: twice as far from the start the proof is larger
            # (a step that the ball has cut short grows by itself)
            waits = searching & better & ~server.indefinite & (stands.idle >= WAITED) & (status == Status.running)
            step = choose(waits & xp.isinf(step.radius), whole_step(w, 2.0 * w - server.origin), step)

        # what would be handed out
        deeper = stands.feasible & (objective < server.best.objective)
        less_violated = violation < server.best.violation
        # a search's last point, with its multipliers, is the proof; but a repeated one may be cut short at a worse point
        cut_short = server.repeated & (~better | (server.phase_rounds >= AGAIN))
        proof = stands.empty & (~cut_short | (sound & (violation <= server.best.violation)))
        keep = (sound & xp.where(stands.seen, deeper, less_violated)) | stands.done | proof
        trial_is = Best(point, objective, violation, there.active, pooled_there.active)
        best = choose(keep, trial_is, server.best)

        # the problem itself may become another one
        change, sharpening = Change.none(), server.sharpening
        softening_now = xp.asarray(1.0) if sharpening is None else sharpening.softening
        if sharpening is not None:
            rough = ROUGH * xp.maximum(xp.abs(objective), LEAST_OBJECTIVE)
            open_gap = xp.maximum(xp.abs(sums.weighted_violation), server.kappa * sums.inequalities)
            roughly = (open_gap <= 2.0 * rough) & (promised(w, step, model, h) <= ROUGHLY_SOLVED * rough)
            roughly = roughly & (violation <= ROUGHLY_MET)
            solved = (better & ~searching & roughly) | stands.done
            ended = status != Status.running
            failed = stands.give_up | stands.retry | (status == Status.stalled)
            trial_there = Anchor(point, there, pooled_there)
            sharpening = sharpening.noted(best, goal.feasibility, stands.done | stands.empty)
            impossible = (status == Status.infeasible) & (sharpening.stated.violation <= goal.feasibility)
            status = xp.where(impossible, Status.stalled, status)  # since a feasible point was seen before
            search = stands.give_up, stands.empty, searching
            sharpening, change = changed(sharpening, solved, ended, failed, *search, goal.feasibility, trial_there)
            status = xp.where(change.any, Status.running, status)
            w = xp.where(sharpening.returning, sharpening.anchor.point, w)

        # the next phase begins afresh, at the best point so far
        elsewhere = (stands.elsewhere & ~change.any) | change.from_start
        at_best = ((stands.give_up | stands.retry) & ~change.any) | change.afresh
        again_there = xp.where(change.searching, own.regularizer.prox(w / softening_now, 0.0), best.point)
        w = xp.where(elsewhere, server.origin, xp.where(at_best, again_there, xp.where(stands.found, point, w)))
        turn = ((stands.found | elsewhere) & ~change.again) | at_best
        # a feasible point that was searched for, or lost, is not left for the sake of a lower objective
        stay = STAY_FEASIBLE * xp.maximum(xp.abs(xp.where(stands.lost, best.objective, objective)), 1.0)
        weight = xp.where(stands.found | stands.lost, stay, xp.where(turn, 0.0, weight))
        at_start = stands.give_up & xp.all(best.point == server.origin) & (sharpening is not None)
        least = xp.where(turn | stands.feasible | change.any, xp.inf, stands.least_violation)
        forgotten = dataclasses.replace(best, objective=xp.asarray(xp.inf), violation=xp.asarray(xp.inf))
        info = RoundInfo(
            objective=objective,
            violation=goal.feasibility * exact.violation,
            stationarity=stationarity,
            kappa=server.kappa,
            length=server.step.length,
            accepted=better,
            softening=softening_now,
            disclosed=reply.per_party,
            server_multipliers=there.active,
            pooled_multipliers=pooled_there.active,
        )
        return ServerState(
            w=w,
            step=choose(turn, first_step(w), choose(change.again, standstill(w), step)),
            model=model,
            kappa=xp.where(turn, 0.0, kappa),
            rho=weight,
            accepted=better,
            own=(here, there),
            pooled=(pooled, pooled_there),
            best=choose(change.any, forgotten, best),
            best_is_trial=keep,
            searching=((searching | stands.give_up) & ~stands.found & ~change.any) | change.searching,
            phases=xp.where(change.any, xp.where(change.from_start, 0, 1), server.phases + xp.where(turn, 1, 0)),
            fresh=turn,
            steepness=xp.where(better, xp.clip(steepness(objective, point), 1.0, STEEPEST), server.steepness),
            origin=server.origin,
            first_violation=xp.where(first & (server.phases == 0), violation, server.first_violation),
            from_start=(server.from_start | stands.elsewhere | at_start) & (~change.any | change.searching),
            repeated=(server.repeated | stands.elsewhere) & (~change.any | change.searching),
            indefinite=(server.indefinite | (searching & ~model.convex)) & ~stands.give_up,
            idle=xp.where(change.any, 0, stands.idle),
            least_violation=least,
            phase_rounds=xp.where(turn | change.any, 0, server.phase_rounds + 1),
            first_search=xp.where(stands.elsewhere, stands.least_violation, server.first_search),
            sharpening=sharpening,
            empty_radius=xp.where(proof, stands.radius, server.empty_radius),
            promising=stands.promising & ~stands.done,
            shrinkage=xp.where(turn | change.any, SHRINKS, stands.shrinkage),
            descent=xp.where(stands.endless | stands.drifts, step.direction, 0.0),
            reach=server.reach,
            credit=server.credit - xp.where(better & trusted, 1, 0),
            goal=goal,
            status=status,
        ), info

    def renewed(self, own: ServerData, server: ServerState) -> ServerState:
        """With slacks and multipliers as they are: the next round evaluates where it begins. But a run that has ended without
        a solution, or searches for a feasible point, begins afresh at its best one."""
        assert server.sharpening is not None  # what changes are bounds on rates
        no, endless, zero = xp.asarray(False), xp.asarray(xp.inf), xp.asarray(0.0)
        ended = (server.status != int(Status.running)) & (server.status != int(Status.converged))
        afresh = ended | server.searching
        w = xp.where(afresh, server.best.point, server.w)
        forgotten = dataclasses.replace(server.best, objective=endless, violation=endless)
        sharpening = dataclasses.replace(
            server.sharpening,
            again=xp.asarray(True),
            anchored=no,
            returning=no,
            rounds=xp.zeros((), int),
            stated=forgotten,
        )
        return dataclasses.replace(
            server,
            w=w,
            step=choose(afresh, first_step(w), standstill(w)),
            kappa=xp.where(afresh, 0.0, server.kappa),
            rho=xp.where(afresh, 0.0, server.rho),
            fresh=afresh,
            searching=no,
            phases=xp.where(afresh, 1, server.phases),
            from_start=no,
            repeated=no,
            phase_rounds=xp.zeros((), int),
            first_search=endless,
            empty_radius=zero,
            promising=no,
            shrinkage=xp.asarray(SHRINKS),
            descent=0.0 * server.descent,
            best=forgotten,
            best_is_trial=no,
            idle=xp.zeros((), int),
            least_violation=endless,
            sharpening=sharpening,
            credit=xp.asarray(CREDIT),
            status=Status.running.as_array(),
        )

    def promises_more(self, server: ServerState) -> jax.Array:
        return server.promising

    def answer(self, own: ServerData, carry: ServerState) -> Answer:
        best = carry.best
        if carry.sharpening is not None:  # with the rates as they are stated, if such a point was seen
            stated = carry.sharpening.stated
            best = choose(xp.isfinite(stated.violation), stated, best)
        multipliers = best.server_multipliers, best.pooled_multipliers
        return Answer(best.point, *multipliers, carry.empty_radius, descent=carry.descent)
