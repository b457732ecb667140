"""A party's keys in a run with secure sums: it signs a key for the session, checks the others', and agrees on masks with them.

hello   its reply has a fresh X25519 key, signed with the party's own key where the pact names it
meet    has the keys of all; from them, and from the whole message, come the masks of every exchange that follows
keys    the same for one question outside of the method's exchanges (recipe, evaluation, promise), which has the keys of all

Where parties may miss exchanges, a mask for somebody who is missing would not cancel. So a party does its step, says that it is
ready, with a key for this exchange alone, and sends nothing of its reply yet:

seal    has the keys of all who are ready; the party sends its reply, masked for just these, and for no other list. There is no
        sum over all beside that over those who are there, and parties that got different lists have masks that do not cancel.

Without `keys` in the pact nobody can tell whose keys these are: then sums are secure against a server that looks, and not
against one that puts its own keys in the parties' places.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from fedpact.deploy.policy import Policy
from fedpact.engines.serialization import Refused
from fedpact.run.pact import Pact

KEY = "FEDPACT_KEY"  # the environment variable with the path of a party's own key
FILE = "signing.key"


def key_file(policy: Policy | None = None) -> pathlib.Path:
    """Where a party's own key is: where its policy says, else FEDPACT_KEY, else the user's folder for settings."""
    import platformdirs

    if policy is not None and policy.signing_key is not None:
        return pathlib.Path(policy.signing_key)
    named = os.environ.get(KEY)
    return pathlib.Path(named) if named else platformdirs.user_config_path("fedpact") / FILE


class OwnKeys:
    """What a party needs for secure sums in one session of a run."""

    def __init__(self, pact: Pact, party: str, policy: Policy, run: str, session: str) -> None:
        from fedpact.privacy.masks import SessionKey

        self._pact, self._party, self._policy = pact, party, policy
        self._named = run, session
        self._key = SessionKey(run, session, party)

    def told(self) -> dict[str, str]:
        """What it tells the others. Refuses where the pact names a key that it does not have."""
        from fedpact.privacy.masks import SigningKey

        if self._pact.keys is None:
            return self._key.signed(None, self._pact.digest)
        file = key_file(self._policy)
        try:
            own = SigningKey.read(file)
        except (OSError, ValueError) as error:
            raise Refused(
                f"it has no key to sign with ({type(error).__name__}): `fedpact keys` makes one, its policy's signing_key or "
                f"{KEY} says where it is"
            ) from None
        if own.public != self._pact.keys[self._party]:
            raise Refused("its key is another than the one that the pact names for it")
        return self._key.signed(own, self._pact.digest)

    def masks(self, meeting: dict[str, Any], among: Sequence[str] | None = None) -> Any:
        """The masks of the session, from the message that all parties get. Refuses keys that are not the parties' own.

        - `among`: whose keys there are (default: all parties').
        """
        from fedpact.privacy.masks import Masks, check_told, transcript_of

        told = meeting.get("keys")
        try:
            check_told(told, among or self._pact.parties, *self._named, self._pact.digest, self._pact.keys)
        except ValueError as error:
            raise Refused(str(error)) from None
        mine: Any = told
        if mine[self._party]["key"] != self._key.public:
            raise Refused("its own key for this session was replaced by another on the way")
        return Masks(self._party, self._key.pairs(mine, transcript_of(meeting)))
