"""The server's channel to the parties, over Flower's grid."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from fedpact.deploy.engine import DEFAULT_WAIT
from fedpact.deploy.flower.pace import Pace
from fedpact.engines.remote import PartyLost

REPLY_POLL, SLOWEST_POLL = (
    0.1,
    1.0,
)  # seconds between two requests for replies, soon after the message and long after it
NODE_POLL = 2.0  # seconds between two requests for the nodes that are online
TTL_MARGIN = 60.0  # seconds that Flower keeps a message longer than we wait for its reply


class FlowerChannel:
    """Sends the same bytes to every named party at once, and collects their replies.

    A party that is offline, or whose node restarts while it computes, has until `wait` seconds after the message was sent: a node
    that is back online is sent the message again (Flower would lose it), and a message that arrives twice gets the same reply. A
    party whose app fails, or that has not replied by then, raises `PartyLost`.

    `on_reply` is called with the name of every party whose reply has come.

    - `grid`: Flower's grid of the run.
    - `wait`: seconds for all replies to one message (default: 600).
    - `make_message`: builds a message from its content, the node's id and its time to live in seconds (default: None, Flower's
      own `Message`; tests pass another).
    """

    interrupts = False  # a party's process handles one message after the other

    def __init__(
        self,
        grid: Any,
        wait: float = DEFAULT_WAIT,
        make_message: Callable[[dict[str, Any], int, float], Any] | None = None,
    ):
        if not wait > 0:
            raise ValueError(
                f"FlowerChannel(wait={wait}): must be > 0; it is in seconds, for the replies to one message"
            )
        self.grid, self.wait, self._make_message = grid, wait, make_message or _flower_message
        self.on_reply: Callable[[str], None] = lambda party: None

    def ask(self, message: bytes, parties: Sequence[str], some: bool = False) -> dict[str, bytes]:
        deadline, pace = time.monotonic() + self.wait, Pace(REPLY_POLL, SLOWEST_POLL)
        replies: dict[str, bytes] = {}
        pending: dict[str, str] = {}  # message id -> party
        reached: dict[str, str] = {}  # party -> activation of the node that its last message was sent to
        nodes: dict[str, Any] = {}
        next_node_poll = 0.0
        while True:
            if time.monotonic() >= next_node_poll:
                nodes, next_node_poll = self._online_nodes(parties), time.monotonic() + NODE_POLL
                active = {name: _activation(nodes[name]) for name in parties if name in nodes and name not in replies}
                new = [name for name, activation in active.items() if activation != reached.get(name)]
                pending |= self._push(message, {name: nodes[name] for name in new})
                reached |= active
            for reply in self.grid.pull_messages(list(pending)) if pending else ():
                party = pending.pop(reply.metadata.reply_to_message_id)
                if not reply.has_error():
                    replies[party] = _reply_bytes(party, reply)
                    self.on_reply(party)
                elif not _node_was_offline(reply.error.code):
                    raise PartyLost(party, f"its app failed: {reply.error.reason}")
                else:
                    reached.pop(party, None)  # so that it is sent the message again when its node is back
            pending = {key: party for key, party in pending.items() if party not in replies}
            if len(replies) == len(parties):
                return {name: replies[name] for name in parties}
            if time.monotonic() >= deadline:
                if some and replies:
                    return {name: replies[name] for name in parties if name in replies}
                raise self._timed_out(next(name for name in parties if name not in replies), nodes)
            pace.wait()

    def _online_nodes(self, parties: Sequence[str]) -> dict[str, Any]:
        """The nodes that are online, by the name under which the server's operator registered their keys."""
        nodes: dict[str, Any] = {}
        for node in self.grid.get_nodes():
            if node.name in nodes and node.name in parties:
                raise PartyLost(node.name, "two keys are registered under its name: flwr supernode list")
            nodes[node.name] = node
        return nodes

    def _push(self, message: bytes, nodes: dict[str, Any]) -> dict[str, str]:
        """Send the message to these nodes; returns the party of each message id."""
        ttl = self.wait + TTL_MARGIN
        messages = [
            self._make_message({"party": name, "message": message}, node.node_id, ttl) for name, node in nodes.items()
        ]
        keys = list(self.grid.push_messages(messages)) if messages else []
        accepted = {key: name for key, name in zip(keys, nodes, strict=False) if key}
        for name in nodes:
            if name not in accepted.values():
                raise PartyLost(name, f"Flower's server did not accept the message of {len(message)} bytes for it")
        return accepted

    def _timed_out(self, party: str, nodes: dict[str, Any]) -> PartyLost:
        offline = "its node is not online, or its key is not registered under this name"
        state = "its node is online" if party in nodes else offline
        return PartyLost(party, f"no answer within {self.wait:g} s; {state}")


def _flower_message(content: dict[str, Any], node: int, ttl: float) -> Any:
    from flwr.app import ConfigRecord, Message, RecordDict

    return Message(RecordDict({"fedpact": ConfigRecord(content)}), node, "query", ttl=ttl)


def _reply_bytes(party: str, reply: Any) -> bytes:
    content = reply.content.config_records.get("fedpact", {}).get("message")
    if not isinstance(content, bytes):
        raise PartyLost(party, "its app is not fedpact's: the reply holds no bytes")
    return content


def _activation(node: Any) -> str:
    """When a node came online, as Flower writes it."""
    return str(node.last_activated_at)


def _node_was_offline(code: int) -> bool:
    from flwr.common.constant import ErrorCode

    return code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
