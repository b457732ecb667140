"""Flower carries a run: https://flower.ai, `pip install "fedpact[flower]"`.

| piece | where | does |
|---|---|---|
| `server_app` | the server, one process per run | `serve`, over a `FlowerChannel` |
| `flower_party.py` | a site, one process as long as its node | takes messages from the node to the `Site` |
| `flower_kit.py` | your desk | writes what server and sites need |
| `flower_poc.py` | your desk | starts all of it on this machine |

A node is a party because the server's operator registered its public key under the party's name (`register.sh`): a node cannot
give itself another name. The site in turn refuses what is meant for another party.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost

HOME = "FEDPACT_FLOWER_SERVER"  # the server's folder, set by its start.sh: a ServerApp is started by the superlink, not by us
OUTCOME = "flower.json"  # how the last run ended, in the server's state folder
WAIT = 600.0  # seconds for a party's answer, default
POLL = 0.1  # seconds between two looks for answers
LOOK = 2.0  # seconds between two looks at which nodes are there
OVER = 30.0  # seconds that a run waits for the last one to be over
SPARE = 60.0  # seconds that Flower keeps a message longer than we wait for its answer


def need_flower() -> None:
    """Say how to get Flower where it is missing."""
    if find_spec("flwr") is None:
        raise ModuleNotFoundError('Flower is not installed here: pip install "fedpact[flower]"')


class FlowerChannel:
    """The server's end: the same bytes to every named party at once, and all their answers.

    A party that is away, or whose node is started again while it works, has until `wait` seconds after the question: a node that
    has come back is sent the message again (Flower would lose it), and a message that comes twice gets the same answer. A party
    whose app fails, or who has not answered by then, is a `PartyLost`.

    Args:
        grid: Flower's grid of the run.
        wait: seconds for all answers to one message.
        make: a message from its content, the node's number and the seconds it lives; Flower's own if None.
    """

    def __init__(self, grid: Any, wait: float = WAIT, make: Callable[[dict[str, Any], int, float], Any] | None = None):
        if not wait > 0:
            raise ValueError(f"FlowerChannel(wait={wait}): wait must be > 0; it is the seconds for a party's answer")
        self.grid, self.wait, self.make = grid, wait, make or _message

    interrupts = False  # a party's process takes one message after the other

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        deadline = time.monotonic() + self.wait
        answers: dict[str, bytes] = {}
        sent: dict[str, str] = {}  # which message waits for whose answer
        reached: dict[str, str] = {}  # the start of the node that a party's last message went to
        nodes: dict[str, Any] = {}
        look = 0.0
        while True:
            if time.monotonic() >= look:
                nodes, look = self._nodes(parties), time.monotonic() + LOOK
                starts = {name: _start(nodes[name]) for name in parties if name in nodes and name not in answers}
                new = [name for name, start in starts.items() if start != reached.get(name)]
                sent |= self._push(message, {name: nodes[name] for name in new})
                reached |= starts
            for reply in self.grid.pull_messages(list(sent)) if sent else ():
                party = sent.pop(reply.metadata.reply_to_message_id)
                if not reply.has_error():
                    answers[party] = _answer(party, reply)
                elif not _node_was_away(reply.error.code):
                    raise PartyLost(party, f"its app failed: {reply.error.reason}")
                else:
                    reached.pop(party, None)  # and is asked again when its node is back
            sent = {key: party for key, party in sent.items() if party not in answers}
            if len(answers) == len(parties):
                return {name: answers[name] for name in parties}
            if time.monotonic() >= deadline:
                if some and answers:
                    return {name: answers[name] for name in parties if name in answers}
                raise self._lost(next(name for name in parties if name not in answers), nodes)
            time.sleep(POLL)

    def _nodes(self, parties: Sequence[str]) -> dict[str, Any]:
        """The parties' nodes that are online, by the name under which the server's operator registered their keys."""
        nodes: dict[str, Any] = {}
        for node in self.grid.get_nodes():
            if node.name in nodes and node.name in parties:
                raise PartyLost(node.name, "two keys are registered under its name: flwr supernode list")
            nodes[node.name] = node
        return nodes

    def _push(self, message: bytes, nodes: dict[str, Any]) -> dict[str, str]:
        ttl = self.wait + SPARE
        made = [self.make({"party": name, "message": message}, node.node_id, ttl) for name, node in nodes.items()]
        keys = list(self.grid.push_messages(made)) if made else []
        taken = {key: name for key, name in zip(keys, nodes, strict=False) if key}
        for name in nodes:
            if name not in taken.values():
                raise PartyLost(name, f"Flower's server did not take the message of {len(message)} bytes for it")
        return taken

    def _lost(self, party: str, nodes: dict[str, Any]) -> PartyLost:
        away = "its node is not online, or its key is not registered under this name"
        return PartyLost(party, f"no answer within {self.wait:g} s; {'its node is online' if party in nodes else away}")


def _message(content: dict[str, Any], node: int, ttl: float) -> Any:
    from flwr.app import ConfigRecord, Message, RecordDict

    return Message(RecordDict({"fedpact": ConfigRecord(content)}), node, "query", ttl=ttl)


def _answer(party: str, reply: Any) -> bytes:
    answer = reply.content.config_records.get("fedpact", {}).get("message")
    if not isinstance(answer, bytes):
        raise PartyLost(party, "its app is not fedpact's: the answer holds no bytes")
    return answer


def _start(node: Any) -> str:
    """When a node came online, as Flower writes it."""
    return str(node.last_activated_at)


def _node_was_away(code: int) -> bool:
    from flwr.common.constant import ErrorCode

    return code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


def server_app() -> Any:
    """The ServerApp of a kit: runs the pact of the server's folder, or goes on with it (run config `resume`)."""
    need_flower()
    from flwr.serverapp import ServerApp

    app = ServerApp()
    app.main()(_main)
    return app


def _main(grid: Any, context: Any) -> None:
    if HOME not in os.environ:
        raise RuntimeError(f"{HOME} is not set: the superlink is started by start.sh of the server's folder")
    home, options = pathlib.Path(os.environ[HOME]), context.run_config
    state = home / "state"
    state.mkdir(exist_ok=True)
    channel = FlowerChannel(grid, wait=float(options["wait"]))
    with _alone(state):
        try:
            serve(home / "pact.py", channel, state, resume=bool(options["resume"]))
        except Exception as error:
            _say(state, f"{type(error).__name__}: {error}", ok=False)
            raise
        _say(state, "finished", ok=True)


@contextlib.contextmanager
def _alone(state: pathlib.Path) -> Iterator[None]:
    """One run at a time: the app of a superlink that was killed lives on for some seconds, and the next would start beside it."""
    deadline = time.monotonic() + OVER
    with (state / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RuntimeError(
                        f"another run is at work in {state}: wait for its end, or end it: flwr stop"
                    ) from None
                time.sleep(POLL)
        yield


def _say(state: pathlib.Path, words: str, ok: bool) -> None:
    """How the run ended, for `run.sh`: Flower's own log of a run does not give an exit status."""
    (state / OUTCOME).write_text(json.dumps({"ok": ok, "words": words}) + "\n")
