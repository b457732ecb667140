"""A site's node on Flower: how often it asks for messages, and that it begins anew where Flower's own is offline for good."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedpact.deploy.flower import node, pace


def test_a_node_asks_soon_after_a_message_and_seldom_later(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, slept = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: moments[-1], sleep=slept.append, time=time.time)
    monkeypatch.setattr(pace, "time", clock)
    monkeypatch.setattr(node, "time", clock)
    monkeypatch.setattr(node, "flower_supernode", lambda: None)
    loop: Any = node.start_client_internal
    monkeypatch.setattr(loop, "time", clock)  # as Flower's loop has the module itself
    node.run()
    assert isinstance(loop.time, node.Clock), "Flower's loop sleeps by ours"
    for moment, seconds in ((0.0, 3), (10.0, 3), (100.0, 3), (101.0, 0.5), (101.5, 3)):
        moments.append(moment)
        loop.time.sleep(seconds)
    assert slept == [0.2, 2.0, 3.0, 0.05, 0.2]
    assert loop.time.time() > 0, "what else it needs of the module"


def raises(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("ends", "anew"),
    [
        (lambda: None, True),  # as Flower does where a connection was cut
        (raises(RuntimeError("the push session may have expired")), True),
        (raises(SystemExit(1)), True),  # the server considers it online, or does not know its key yet
        (raises(SystemExit(0)), False),  # SIGTERM
        (raises(SystemExit(2)), False),  # wrong arguments
    ],
)
def test_a_node_that_fails_begins_anew_until_it_is_stopped(
    ends: Callable[[], None], anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(node.AGAIN, "")  # as it was, when this test has ended
    monkeypatch.delenv(node.AGAIN)
    monkeypatch.setattr(node, "run", ends)
    started = []
    monkeypatch.setattr(node.os, "execv", lambda *words: started.append(words))
    with contextlib.nullcontext() if anew else pytest.raises(SystemExit):
        node.main()
    assert bool(started) == (node.AGAIN in os.environ) == anew


def test_what_a_message_announced_is_asked_for_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, pull_objects

    monkeypatch.setattr(pull_objects, "__kwdefaults__", dict(pull_objects.__kwdefaults__ or {}))
    pace.pull_soon()
    tries = []

    def pull(part: str) -> bytes:
        tries.append(part)
        if len(tries) < 3:
            raise ObjectUnavailableError(part)
        return b"there"

    began = time.monotonic()
    assert pull_objects(["part"], pull) == {"part": b"there"}
    assert time.monotonic() - began < 1.0, "Flower's own first wait is a second, its next two"


def test_a_message_that_does_not_come_is_given_up_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedpact.deploy.flower import site_process

    never, told, tokens = threading.Event(), [], iter(["", "next"])
    heart = SimpleNamespace(start=lambda: told.append("beats"), stop=lambda: told.append("stops"))
    monkeypatch.setattr(site_process, "HeartbeatSender", lambda beat: heart)
    monkeypatch.setattr(site_process, "pull_task_input", lambda node: never.wait())
    monkeypatch.setattr(site_process, "MESSAGE_POLL", 0.001)
    node: Any = SimpleNamespace(
        PushTaskOutput=lambda output: told.append(output.details), close=lambda: told.append("closed")
    )
    assert site_process.handle_message(bytes, "north", node, lambda: next(tokens)) == "next"
    assert told == ["beats", "its message did not come", "stops", "closed"]
    never.set()
