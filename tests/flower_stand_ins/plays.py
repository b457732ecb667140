"""A pact for the tests of Flower: what the server asks, with all that comes back written into its folder."""

import json
from concurrent.futures import ThreadPoolExecutor

from fedpact.engines.remote import PartyLost

PAYLOAD = bytes(range(256)) * 32


def play(channel, folder, resume):
    if resume:
        answers = channel.ask(b"again", ["north", "west"])
        (folder / "resumed.json").write_text(json.dumps({name: answer.decode() for name, answer in answers.items()}))
        return
    with ThreadPoolExecutor(2) as threads:  # as active and passive parties are asked at the same time
        both = [threads.submit(channel.ask, PAYLOAD, [name]) for name in ("north", "west")]
        first = {name: answer for asked in both for name, answer in asked.result().items()}
    seen: dict = {"heads": {name: answer.removesuffix(PAYLOAD).decode() for name, answer in first.items()}}
    for words, order, parties in (("failed", b"fail:west", ["west"]), ("away", b"hello", ["nobody"])):
        channel.wait = 3.0 if words == "away" else 60.0
        try:
            channel.ask(order, parties)
        except PartyLost as lost:
            seen[words] = [lost.party, lost.why]
    (folder / "seen.json").write_text(json.dumps(seen))
    channel.wait = 60.0
    (folder / "asked").touch()
    channel.ask(b"sleep:west 8", ["north", "west"])
    (folder / "answered").touch()
    raise RuntimeError("the server's own failure")
