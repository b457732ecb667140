"""The messages that match ids, in words, for `fedpact wire`."""

from fedpact.run.pact import Pact

WHEN = "once, before all others"


def matching_messages(pact: Pact) -> tuple[tuple[str, ...], ...]:
    """The rows of `fedpact wire` about a matching: none where the pact has no `align`."""
    if pact.align is None:
        return ()
    ids, one = f"the ids in {pact.align}", "32 for each id"
    return (
        (WHEN, "count its ids", "all parties", "0", "nothing", "0", f"how many there are of {ids}, numbers or strings"),
        (WHEN, "blind its ids", "all parties", "0", "nothing", one, f"{ids}, blinded by its own secret number"),
        (
            WHEN,
            "blind the others' ids",
            "all parties",
            f"{one} of the others",
            f"the other parties' lists of {ids}, blinded",
            f"{one} of the others",
            "the same, blinded by its own secret number too",
        ),
        (
            WHEN,
            "keep the rows in common",
            "all parties",
            "1 for every 8 of its ids",
            "which of its own ids all parties have",
            f"8 for each row in common, from {pact.active[0]}",
            f"{pact.active[0]}, whose table the server has: which rows of it are in common; the others: nothing",
        ),
    )


# What they reveal: to the party that gets the message, and to the server that gets the reply.
REVEALS = {
    "count its ids": ("nothing", "one party"),
    "blind its ids": ("nothing", "nothing"),
    "blind the others' ids": ("how many ids the others have", "how many ids parties share"),
    "keep the rows in common": ("the ids that all parties have", "one party"),
}
