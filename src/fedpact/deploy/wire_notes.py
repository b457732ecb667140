"""What stands on top of `fedpact wire`: who can read what in this run, in sentences."""

from fedpact.deploy.message_list import MessageList

MASKED = (
    "Sums are secure: every party adds masks to its reply that cancel in the sum over all who are asked. The server can read "
    'sums over parties, and of a maximum the next power of two; where it says "one party" below, the server reads what '
    "each says. A number that is added up takes 16 bytes, a maximum 1,024. The masks come from keys that parties make for this "
    "run, and send before the first round; before a question outside of rounds they make and send new ones."
)
SOME_MISSING = (
    "Parties may miss exchanges: in each, a party first says that it is ready, with a key for this exchange, and then sends its "
    "reply, masked for those who are. A sum is over these, 3 at least. A server that leaves a party out of one of two sums at "
    "the same point reads what that party said; min_parties in a party's policy says how many have to be in a sum."
)
WITH_KEYS = (
    "The pact has the parties' keys, with which they sign those of a run: a server that puts its own keys in the parties' "
    "places is refused."
)
WITHOUT_KEYS = (
    "The pact has no keys of the parties: sums are secure against a server that looks, not against one that puts its own keys "
    "in the parties' places. `fedpact keys` makes keys."
)
CHECKED = (
    "Points are checked: each message brings the sums of the exchange before it, from which every party computes the message "
    "itself, and it answers no other. A server that has one party's help can get around this."
)
UNCHECKED = (
    "Points are not checked: a server that does not follow the method may ask at points of its own choice, where even sums "
    "tell single rows."
)
NOISE = (
    "What a party tells of its rows in rounds, and for the certificate, is clipped and has noise, which the party draws itself: "
    "a run is differentially private with ε = {epsilon:g} at δ = {delta:g}. Counts, and what a recipe asks, have no noise."
)
ASKED_FOR = 'The pact says options = {"privacy": None}: the server receives what each party says, and combines it then.'
IN_THE_CLEAR = (
    "Sums are not secure: the server receives the reply of every party by itself, so that it reads each party's own numbers, "
    "and combines them then."
)


def notes(listing: MessageList) -> list[str]:
    """What to know before reading on."""
    if listing.secure:
        seen = [MASKED, *([SOME_MISSING] if listing.some_missing else [])]
        seen += [WITH_KEYS if listing.keys else WITHOUT_KEYS, CHECKED if listing.checked else UNCHECKED]
    else:
        seen = [ASKED_FOR if listing.in_the_clear else IN_THE_CLEAR]
    if listing.noise is not None:
        seen.insert(0, NOISE.format(epsilon=listing.noise.epsilon, delta=listing.noise.delta))
    if listing.warning:
        seen.insert(0, listing.warning)
    return [
        *seen,
        "Messages to parties are computed from all replies; one of two parties can subtract its own part. Bytes are of the "
        "numbers in one message of one party; names and words add about 1 kB.",
    ]
