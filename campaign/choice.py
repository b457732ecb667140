"""Fixed samples of the problems, spread over families and kinds."""

from campaign.families import problems
from campaign.statement import Case

SLOW = ("real", "users", "network-8", "many-caps")


def spread(cases: list[Case], count: int) -> list[Case]:
    """`count` of these, in turn from every family, with kinds and levels that change from pick to pick."""
    families: dict[str, list[Case]] = {}
    for case in cases:
        families.setdefault(case.family, []).append(case)
    turns = []
    for place, mine in enumerate(families.values()):
        # steps of the golden section visit a list evenly, however many are taken
        order = sorted(range(len(mine)), key=lambda i, n=len(mine), s=place: _turn(i, n, s))
        turns += [(turn, place, mine[i]) for turn, i in enumerate(order)]
    turns.sort(key=lambda t: t[:2])
    chosen = {case.name for _, _, case in turns[:count]}
    return [case for case in cases if case.name in chosen]


def _turn(index: int, length: int, shift: int) -> float:
    """When an index is visited by the sequence (k + shift) · 0.618… mod 1, as the first k that falls into its cell."""
    for k in range(20 * length):
        if int(((k + 3 * shift + 1) * 0.6180339887498949) % 1.0 * length) == index:
            return k
    return 20.0 * length + index


def sample(count: int = 60) -> list[Case]:
    """Small problems for a test, one shape in each family; their references need no IPOPT.

    They are convex (Clarabel), or known by their construction, or judged by NumPy alone (stationary points).
    """
    shapes: dict[str, str] = {}
    for case in problems().values():
        small = case.family not in SLOW and case.kind != "scaled"
        if small and (case.family not in shapes or " (3, " in case.shape):
            shapes[case.family] = case.shape
    mine = [case for case in problems().values() if shapes.get(case.family) == case.shape]
    return spread([case for case in mine if _judged_without_ipopt(case)], count)


def _judged_without_ipopt(case: Case) -> bool:
    stated = case.make()
    return stated.formulas.convex or stated.known is not None
