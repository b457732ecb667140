"""Masks that cancel in a sum: every two parties agree on random words, which one adds and the other takes away.

A party has an Ed25519 key for good, whose public half stands in the pact, and an X25519 key for each session, which it signs
with the other. Every two parties then share a secret that the server, who carried the keys, does not know. From it, the number
of an exchange and the message that is answered come the words of that exchange's masks (AES-256 in counter mode), so no mask
is used twice, and parties that were asked different things get masks that do not cancel.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import pathlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpact.extras import install

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise ImportError(f"secure sums across organisations need the library cryptography: {install('secure')}") from None

SIGNED = b"fedpact: key of a session\n"
PAIR = b"fedpact: masks of two parties\n"
ENVELOPE = b"fedpact: envelope\n"


class SigningKey:
    """A party's key for good: with it the party signs what it sends of a session's key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def new(cls) -> "SigningKey":
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: pathlib.Path) -> "SigningKey":
        """Raises FileNotFoundError, and ValueError where the file holds something else or others may read it."""
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path}: others may read this key; make it yours alone: chmod 600 {path}")
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} holds no key: {error}; `fedpact keys` makes one") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{path} holds a key of another kind; `fedpact keys` makes one")
        return cls(key)

    def save(self, path: pathlib.Path) -> None:
        """To a new file that nobody else may read. Raises FileExistsError where there is one."""
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = self._private.private_bytes(*form)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(pem)

    @property
    def public(self) -> str:
        """The half that stands in a pact."""
        return _text(self._private.public_key().public_bytes_raw())

    def sign(self, words: bytes) -> str:
        return _text(self._private.sign(words))


def is_signed(public: str, words: bytes, signature: Any) -> bool:
    """Whether the holder of a public key's other half signed these words."""
    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes(public))
        key.verify(_bytes(signature), words)
    except (InvalidSignature, ValueError):
        return False
    return True


def checked_public(public: Any) -> None:
    """Raises ValueError where this is no public key."""
    if not isinstance(public, str) or len(_bytes(public)) != 32:
        raise ValueError(f"{public!r} is no public key; `fedpact keys` prints one")


class SessionKey:
    """A party's key for one session of one run."""

    def __init__(self, run: str, session: str, party: str) -> None:
        self.party, self._named = party, (run, session)
        self._private = X25519PrivateKey.generate()

    @property
    def public(self) -> str:
        return _text(self._private.public_key().public_bytes_raw())

    def signed(self, key: SigningKey | None, digest: str) -> dict[str, str]:
        """What the party tells the others: the public half, signed where it has a key to sign with."""
        told = {"key": self.public}
        if key is not None:
            told["signature"] = key.sign(_statement(*self._named, self.party, digest, self.public))
        return told

    def pairs(self, told: Mapping[str, Any], transcript: bytes) -> dict[str, bytes]:
        """The secret that it shares with each other party. `told`: the keys of all; `transcript`: what all have to agree on."""
        shared = {}
        for name, each in told.items():
            if name == self.party:
                continue
            public = X25519PublicKey.from_public_bytes(_bytes(each["key"]))
            kdf = HKDF(SHA256(), 32, salt=transcript, info=PAIR)
            shared[name] = kdf.derive(self._private.exchange(public))
        return shared


def check_told(
    told: Any, names: Sequence[str], run: str, session: str, digest: str, known: Mapping[str, str] | None
) -> None:
    """Raises ValueError unless every party has a key of its own, which it signed where the pact knows its key."""
    if not isinstance(told, dict) or sorted(told) != sorted(names):
        raise ValueError("the keys of the session are not those of the pact's parties")
    for name in names:
        public = told[name].get("key") if isinstance(told[name], dict) else None
        if not isinstance(public, str) or len(_bytes(public)) != 32:
            raise ValueError(f"the key of party {name!r} for this session is no key")
        words = _statement(run, session, name, digest, public)
        if known is not None and not is_signed(known[name], words, told[name].get("signature")):
            raise ValueError(f"the key of party {name!r} for this session is not signed with its key in the pact")
    if len({told[name]["key"] for name in names}) < len(names):
        raise ValueError("two parties have the same key in this session")


def transcript_of(*parts: Any) -> bytes:
    """What all parties have to agree on before their masks cancel, as a digest."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


class Masks:
    """The masks of one party in one session.

    - `party`: its name. `shared`: what it shares with each other party.

    Where points are checked, all parties share one more secret, which one of them draws and sends to the others in envelopes
    that the server cannot open.
    """

    def __init__(self, party: str, shared: Mapping[str, bytes]) -> None:
        self.party, self._secrets = party, dict(shared)
        self._common: bytes | None = None

    @property
    def checked(self) -> bool:
        """Whether replies carry tags: the secret of all parties is known."""
        return self._common is not None

    def envelopes(self) -> dict[str, str]:
        """A new secret of all parties, for each of the others."""
        self._common = secrets.token_bytes(32)
        return {
            name: _text(_box(secret).encrypt(bytes(12), self._common, None)) for name, secret in self._secrets.items()
        }

    def open(self, sender: str, envelope: Any) -> None:
        """The secret of all parties, from an envelope. Raises ValueError where it is not one of this session's."""
        try:
            self._common = _box(self._secrets[sender]).decrypt(bytes(12), _bytes(envelope), None)
        except InvalidTag:
            raise ValueError(f"the envelope from party {sender!r} is not one of this session") from None

    def factors(self, number: int, message: bytes, size: int) -> np.ndarray:
        """`size` random words (uint64) of an exchange that all parties know, and the server does not."""
        assert self._common is not None
        return _stream(self._common, number, message, size)

    def streams(self, among: Sequence[str], number: int, message: bytes, size: int) -> list[tuple[int, np.ndarray]]:
        """For each other party of a group: 1 or −1, and `size` random words (uint64) of this exchange.

        - `among`: the names of all that are asked. `number`: of the exchange. `message`: a digest of what is answered.
        """
        return [
            (1 if self.party < other else -1, _stream(self._secrets[other], number, message, size))
            for other in among
            if other != self.party
        ]


def _stream(secret: bytes, number: int, message: bytes, size: int) -> np.ndarray:
    """`size` random words of one exchange."""
    key = hmac.digest(secret, number.to_bytes(8, "little") + message, "sha256")
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
    return np.frombuffer(cipher.encryptor().update(bytes(8 * size)), np.uint64)


def _box(secret: bytes) -> AESGCM:
    """Of two parties, for one envelope in a session: its key is used once."""
    return AESGCM(hmac.digest(secret, ENVELOPE, "sha256"))


def _statement(run: str, session: str, party: str, digest: str, public: str) -> bytes:
    return SIGNED + json.dumps([run, session, party, digest, public]).encode()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: Any) -> bytes:
    """b"" where it is no text of this kind."""
    if not isinstance(text, str):
        return b""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
