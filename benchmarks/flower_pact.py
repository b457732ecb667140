"""What the server of benchmarks/flower.py does instead of a run: the same bytes by Flower's bare loop and by ours, in turn."""

import json
import time
from functools import partial

EXCHANGES = 6
SIZES = (1_000, 100_000)  # numbers of 8 bytes
PARTIES = ("north", "south", "west")


def bare(grid, payload):
    """Flower's own way: every online node's answer to the same bytes, from a handler that hands them back."""
    from flwr.app import ConfigRecord, Message, RecordDict

    nodes = list(grid.get_node_ids())
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
