"""Rounds that ask a tenth of the parties, beside rounds that ask all: seconds and bytes."""

import fedpact as fp

PARTIES, PART, ROUNDS, REPEATS = 100, 0.1, 10, 2
STEPS = (
    ("FedAvg", fp.FedAvg),
    ("FedProx, mu = 0.1", lambda **more: fp.FedProx(0.1, **more)),
    ("SCAFFOLD", fp.SCAFFOLD),
)
BATCHES = ((10, 1), (50, 12), (None, 5))


def measure() -> str:
    lines = [
        "## A tenth of the parties in a round\n",
        f"`python -m benchmarks participation`: MNIST, {PARTIES} parties of 600 rows, softmax regression (7,850 parameters), "
        f"{ROUNDS} rounds of `participation={PART}` beside 1.0 in one process, compiled before; the best of {REPEATS}, "
        "alternating. Who is not drawn computes nothing and sends nothing.\n",
        "| method | rows of a step | local steps | ms a round, all | a tenth | ratio | bytes, ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    parties = fp.split_rows(fp.datasets.mnist()[0], parties=PARTIES, seed=0)
    problem = fp.minimize(fp.mean(fp.softmax_loss(fp.linear(bias=True, outputs=10))))
    for title, method in STEPS:
        for batch, steps in BATCHES if title == "FedAvg" else BATCHES[1:2]:
            best, sent = {1.0: float("inf"), PART: float("inf")}, {}
            for _ in range(REPEATS + 1):  # the first one compiles
                for part in best:
                    options = method(batch=batch, local_steps=steps, step=0.1, participation=part)
                    run = fp.solve(problem, parties, options, max_rounds=ROUNDS, progress=False)
                    best[part] = min(best[part], run.seconds / ROUNDS)
                    sent[part] = run.bytes_up + run.bytes_down
            ms = [1e3 * best[part] for part in (1.0, PART)]
            lines.append(
                f"| {title} | {batch or 600} | {steps} | {ms[0]:.1f} | {ms[1]:.1f} | {ms[1] / ms[0]:.2f} | "
                f"{sent[PART] / sent[1.0]:g} |"
            )
    return "\n".join(lines) + "\n"
