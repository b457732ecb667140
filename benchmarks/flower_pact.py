"""What the server of benchmarks/flower.py does instead of a run: the same bytes by Flower's bare loop and by ours, in turn."""

import json
import time
from functools import partial

EXCHANGES = 6
SIZES = (1_000, 100_000)  # numbers of 8 bytes
PARTIES = ("north", "south", "west")
BARE = ("bare-1", "bare-2", "bare-3")  # as many nodes that Flower serves by itself


def bare(grid, payload):
    """Flower's own way: the same bytes to its nodes, and back from a handler that hands them back."""
    from flwr.app import ConfigRecord, Message, RecordDict

    nodes = []
    while len(nodes) < len(BARE):
        nodes = [node.node_id for node in grid.get_nodes() if node.name in BARE]
    made = [Message(RecordDict({"bare": ConfigRecord({"message": payload})}), node, "query.bare") for node in nodes]
    waiting = set(grid.push_messages(made))
    while waiting:
        for reply in grid.pull_messages(waiting):
            assert reply.content["bare"]["message"] == payload
            waiting.remove(reply.metadata.reply_to_message_id)
        time.sleep(0.1)


def play(channel, folder, resume):
    del resume
    channel.ask(b"warm", PARTIES)
    bare(channel.grid, b"warm")
    figures = []
    for size in SIZES:
        payload = bytes(8 * size)
        ways = {"bare": partial(bare, channel.grid, payload), "ours": partial(channel.ask, payload, PARTIES)}
        times = {name: [] for name in ways}
        for _ in range(EXCHANGES):
            for name, exchange in ways.items():
                began = time.perf_counter()
                exchange()
                times[name].append(time.perf_counter() - began)
        figures.append({"size": size, **times})
    (folder / "figures.json").write_text(json.dumps(figures))
