"""`--retry`: a run that stopped is resumed, after what has ended was started again."""

import os
import pathlib

import pytest

from fedpact.deploy.this_machine import Attempt, run_until_finished


def played(folder: pathlib.Path, ends: list[tuple[bool, bytes | None]], retry: int) -> tuple[Attempt, list[str]]:
    """Attempts that end like this, one after the other: whether finished, and what the server saved in it."""
    done: list[str] = []
    state = folder / "server" / "fedpact" / "state.npz"
    state.parent.mkdir(parents=True)
    left = iter(ends)

    def attempt(resume: bool) -> Attempt:
        done.append("resume" if resume else "run")
        finished, saved = next(left)
        if saved is not None:
            state.write_bytes(saved)
            at = 10**9 * len(done)
            os.utime(state, ns=(at, at))
        return Attempt(finished, f"attempt {len(done)}")

    return run_until_finished(attempt, lambda: done.append("revive"), folder, retry), done


@pytest.mark.parametrize(
    ("ends", "retry", "finished", "expected"),
    [
        ([(True, b"1")], 3, True, ["run"]),
        ([(False, b"1"), (False, b"2"), (True, b"3")], 3, True, ["run", "revive", "resume", "revive", "resume"]),
        ([(False, b"1")], 0, False, ["run"]),
        ([(False, b"1"), (False, b"2")], 1, False, ["run", "revive", "resume"]),
        ([(False, None), (False, None)], 5, False, ["run", "revive", "resume"]),  # no further than before
    ],
)
def test_a_run_is_resumed_as_often_as_it_may_and_while_it_gets_on(
    ends: list[tuple[bool, bytes | None]], retry: int, finished: bool, expected: list[str], tmp_path: pathlib.Path
) -> None:
    result, done = played(tmp_path, ends, retry)
    assert (result.finished, done) == (finished, expected)
