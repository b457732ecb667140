"""A party's gradient Jᵀν from a ν that it cannot read: CKKS ciphertexts, as arrays of bytes of a fixed shape.

    server   Enc(ν)                                   `ServerKey.encrypt`   ν: one number per row and embedding output
    party    Enc(Jᵀν + mask), and keeps the opening   `masked_product`      J: its own matrix, len(ν) × d, in the clear
    server   Jᵀν + mask + noise                       `ServerKey.decrypt`
    party    Jᵀν + noise                              `unmask`

Packing. ν is cut into blocks of s numbers, which are the coefficients of v(X) = Σ_i ν_i X^i modulo X^N + 1. A column x of J is
x(X) = Σ_i x_i X^(s-1-i), so that coefficient s-1 of v(X) x(X) is their inner product: nothing is rotated or summed, there are no
Galois keys, and a short ν leaves room for N // s columns in one ciphertext. CKKS encodes numbers in slots; a discrete Fourier
transform gives the slots that make wanted coefficients. For n = 40,000 a column takes 0.021 CPU s with its mask (17 of them,
`python -m benchmarks encrypted`); tenseal's own `dot` takes 0.31 and 18.6 MB of Galois keys; slots multiplied one by one, to be
summed after decryption, take 0.031, and a mask modulo Q could not be taken off them (one core of a Neoverse N1).

Parameters. N = 4096 and primes of 46, 47 and 16 bits (the last is SEAL's, no ciphertext uses it): 109 bits, the most that the
Homomorphic Encryption Standard allows for 128-bit security at this N; SEAL refuses more. ν is rounded to 2^-61, column j of J to
2^-21 c_j, where c_j is the power of two above its largest entry. There is one product and no rescaling. The error is at most
c_j (2^-39 √len(ν) + 2^-22 Σ|ν_i|); 2.4e-9 was the largest of 255 at n = 40,000. Σ|ν_i| must stay below 1000 for the product
to stay below Q/2: a larger ν, or one that is not finite, travels as zeros and comes back as NaN.

What the server learns: nothing but the sizes. Each coefficient that it decrypts is the product, noise included, plus a mask
uniform modulo Q = 2^93, so the ratio of mask to value does not matter. (Masks are made of doubles of three sizes, which brings
each coefficient within 2^-26 of uniform.) The mask is added as a fresh encryption under the public key. Added in the clear it
would leave the other half of the ciphertext, J times numbers that the server has chosen, open to division.

What a party learns: its own gradient. The server returns the d wanted coefficients with noise 2^20 times that of encryption,
since exact decryptions are linear equations in the secret key. The gradient may say much by itself: with as many columns as
rows, or a column with a single entry, it determines numbers in ν. All this is for parties that follow the protocol; one that does
not can have d other linear functions of ν decrypted.

Masks are SHAKE-256 of 64 secret bytes of the party, the ciphertext and J: the same call gives the same mask, any other call
another. So `masked_product` may be called again at will; its ciphertexts differ, what they hold does not.
"""

import functools
import hashlib
import importlib
import math
import os
import pathlib
import tempfile
from typing import Any

import numpy as np

from fedpact.extras import install

DEGREE = 4096
PRIME_BITS = (46, 47, 16)
NU_UNIT = 2.0**-61
COLUMN_UNIT = 2.0**-21
LARGEST_SUM = 1000.0  # of |ν_i|
FLOOD = 2.0**20  # noise in what the server returns, against the noise of encryption
ENCRYPTION_NOISE = 3.2  # standard deviation per coefficient, in SEAL and in the standard
SEED_BYTES = 64
# Residues modulo the primes are random, so Zstandard's sizes hardly vary: 111.2 to 112.1 kB, 133.8 to 136.4 kB for a public key.
CELL = 113 * 1024
PUBLIC_BYTES = 138 * 1024


def seal() -> Any:
    """The library behind tenseal."""
    try:
        return importlib.import_module("tenseal.sealapi")
    except ImportError as missing:
        raise ImportError(f"fp.EncryptedResiduals needs tenseal: {install('encrypted')}") from missing


def fresh_seed() -> np.ndarray:
    """64 secret bytes from the operating system: a server's key, or a party's masks."""
    return np.frombuffer(os.urandom(SEED_BYTES), np.uint8)


def block_length(length: int) -> int:
    """s: numbers of ν in one ciphertext."""
    return min(length, DEGREE)


def columns_together(length: int) -> int:
    """Columns of J whose products share a ciphertext."""
    return DEGREE // block_length(length)


def residual_shape(length: int) -> tuple[int, int]:
    """Of Enc(ν) for `length` numbers."""
    return -(-length // block_length(length)), CELL


def product_shape(length: int, columns: int) -> tuple[int, int]:
    """Of Enc(Jᵀν + mask) for J with `length` rows."""
    return -(-columns // columns_together(length)), CELL


class ServerKey:
    """The server's keys, made from 64 secret bytes: the same bytes give the same secret key, in a resumed run too."""

    def __init__(self, seed: bytes):
        library, self._seed = seal(), seed
        # Only the secret key comes from the seed. Each generator of a seeded context starts anew, and whatever else
        # it made, the public key first of all, would repeat the bytes that the secret key was drawn from.
        generator = library.Blake2xbPRNGFactory(np.frombuffer(seed, np.uint64).tolist())
        secret = library.KeyGenerator(_new_context(generator)).secret_key()
        self._encryptor = library.Encryptor(_context(), secret)
        self._decryptor = library.Decryptor(_context(), secret)
        public = library.PublicKey()
        library.KeyGenerator(_context(), secret).create_public_key(public)
        self.public = _cell(public, PUBLIC_BYTES)

    def encrypt(self, nu: np.ndarray) -> np.ndarray:
        """Enc(ν): uint8 of `residual_shape(len(ν))`; zeros if ν is too large."""
        shape, s = residual_shape(nu.size), block_length(nu.size)
        if not np.abs(nu).sum() < LARGEST_SUM:
            return np.zeros(shape, np.uint8)
        cells, sealed = [], seal().Ciphertext()
        for start in range(0, nu.size, s):
            self._encryptor.encrypt_symmetric(_encoded(np.rint(nu[start : start + s] / NU_UNIT), NU_UNIT), sealed)
            cells.append(_cell(sealed))
        return np.stack(cells)

    def decrypt(self, product: np.ndarray, length: int, columns: int) -> np.ndarray:
        """The masked gradient: `columns` numbers in units of Q, hence modulo 1. NaN for zeros."""
        if not product.any():
            return np.full(columns, np.nan)
        found, plain = [], seal().Plaintext()
        for cell in product:
            self._decryptor.decrypt(_loaded(seal().Ciphertext(), cell), plain)
            found.append(_wanted(_decoded(plain, NU_UNIT * COLUMN_UNIT), length))
        width = 2 * FLOOD * ENCRYPTION_NOISE * math.sqrt(length) / COLUMN_UNIT
        noise = width * _uniform(columns, self._seed, product.tobytes())
        return (np.concatenate(found)[:columns] + noise) / _modulus()


server_key = functools.lru_cache(maxsize=8)(ServerKey)


def masked_product(
    public: np.ndarray, residual: np.ndarray, jacobian: np.ndarray, seed: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """Enc(Jᵀν + mask), uint8 of `product_shape(*J.shape)`, and its opening, float64 (2, columns), which stays here.

    `seed`: the party's own 64 secret bytes. The opening holds the mask and, per column, the unit of its gradient.
    """
    library, (length, columns) = seal(), jacobian.shape
    shape, s, together = product_shape(length, columns), block_length(length), columns_together(length)
    largest = np.abs(jacobian).max(0)
    if not (residual.any() and np.isfinite(largest).all()):
        return np.zeros(shape, np.uint8), np.zeros((2, columns))
    exponent = np.frexp(largest)[1]  # of the power of two above each column, 0 for a column of zeros
    rounded = np.zeros((len(residual) * s, shape[0] * together))
    rounded[:length, :columns] = np.rint(np.ldexp(jacobian, -exponent) / COLUMN_UNIT)
    # (block, row, message, column) with the rows in reverse -> (message, block, column and row)
    packed = rounded.reshape(len(residual), s, shape[0], together)[:, ::-1].transpose(2, 0, 3, 1)
    packed = packed.reshape(shape[0], len(residual), together * s)
    draws = _uniform(shape[0] * 3 * DEGREE, seed, residual.tobytes(), rounded.tobytes()).reshape(shape[0], 3, DEGREE)

    encryptor, evaluator = library.Encryptor(_context(), _public(public.tobytes())), library.Evaluator(_context())
    blocks, term = [_loaded(library.Ciphertext(), cell) for cell in residual], library.Ciphertext()
    messages, masks = [], []
    for message, draw in zip(packed, draws, strict=True):
        total, mask = _encrypted_mask(encryptor, evaluator, draw)
        for block, polynomial in zip(blocks, message, strict=True):
            if polynomial.any():  # SEAL has no product with zero
                evaluator.multiply_plain(block, _encoded(polynomial, COLUMN_UNIT), term)
                evaluator.add_inplace(total, term)
        messages.append(_cell(total))
        masks.append(_wanted(mask, length))
    unit = np.ldexp(_modulus() * NU_UNIT * COLUMN_UNIT, exponent)
    return np.stack(messages), np.stack([np.concatenate(masks)[:columns], unit])


def unmask(masked: Any, opening: Any) -> Any:
    """Jᵀν, from the server's numbers and the party's opening (numpy or JAX)."""
    difference = masked - opening[0]
    return (difference - difference.round()) * opening[1]


def _encrypted_mask(encryptor: Any, evaluator: Any, draw: np.ndarray) -> tuple[Any, np.ndarray]:
    """Enc(mask) for a mask uniform modulo Q, and the mask in units of Q; `draw`: (3, N) numbers in [-1/2, 1/2).

    SEAL encodes up to Q/4, hence twice a mask of half the width. A double has 53 bits, so two narrower ones fill the lower bits:
    left open, they would show the product modulo 2^40.
    """
    widths = np.array([_modulus() / 2, 2.0**68, 2.0**48])
    terms = np.rint(draw * widths[:, None])
    wide, *narrow = (_encoded(term, NU_UNIT * COLUMN_UNIT) for term in terms)
    total = seal().Ciphertext()
    encryptor.encrypt(wide, total)
    for plain in (wide, *narrow):
        evaluator.add_plain_inplace(total, plain)
    return total, (2 * terms[0] + terms[1] + terms[2]) / _modulus()


def _uniform(count: int, seed: bytes, *about: bytes) -> np.ndarray:
    """`count` numbers in [-1/2, 1/2) that are random to whoever does not know `seed`: SHAKE-256."""
    digest = hashlib.blake2b(b"".join(hashlib.blake2b(part).digest() for part in about)).digest()
    words = np.frombuffer(hashlib.shake_256(seed + digest).digest(8 * count), np.uint64)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5


def _wanted(coefficients: np.ndarray, length: int) -> np.ndarray:
    """Those that are inner products with a column of J."""
    s = block_length(length)
    return coefficients[s - 1 :: s]


def _encoded(coefficients: np.ndarray, unit: float) -> Any:
    """A plaintext with these integers as its first coefficients; `unit` is what 1 stands for."""
    values = DEGREE * np.fft.ifft(coefficients * _roots()[: coefficients.size], DEGREE)
    plain = seal().Plaintext()
    _encoder().encode(values[_places()] * unit, 1 / unit, plain)
    return plain


def _decoded(plain: Any, unit: float) -> np.ndarray:
    slots, values = np.array(_encoder().decode_complex(plain)) / unit, np.empty(DEGREE, complex)
    values[_places()], values[DEGREE - 1 - _places()] = slots, slots.conj()
    return (np.fft.fft(values) / DEGREE * _roots().conj()).real


@functools.cache
def _roots() -> np.ndarray:
    """ζ^l for ζ = exp(iπ/N)."""
    return np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)


@functools.cache
def _places() -> np.ndarray:
    """k for each slot: slot j is the polynomial's value at ζ^(2k+1), 2k+1 = 3^j modulo 2N."""
    return np.array([(pow(3, j, 2 * DEGREE) - 1) // 2 for j in range(DEGREE // 2)])


def _new_context(generator: Any = None) -> Any:
    library = seal()
    chosen = library.EncryptionParameters(library.SCHEME_TYPE.CKKS)
    chosen.set_poly_modulus_degree(DEGREE)
    chosen.set_coeff_modulus(library.CoeffModulus.Create(DEGREE, list(PRIME_BITS)))
    if generator is not None:
        chosen.set_random_generator(generator)
    return library.SEALContext(chosen, True, library.SEC_LEVEL_TYPE.TC128)


_context = functools.cache(_new_context)


@functools.cache
def _encoder() -> Any:
    return seal().CKKSEncoder(_context())


@functools.cache
def _modulus() -> float:
    """Q, the product of the primes that ciphertexts use."""
    primes = seal().CoeffModulus.Create(DEGREE, list(PRIME_BITS))[:-1]
    return float(math.prod(prime.value() for prime in primes))


@functools.lru_cache(maxsize=8)
def _public(public: bytes) -> Any:
    return _loaded(seal().PublicKey(), np.frombuffer(public, np.uint8))


def _cell(thing: Any, size: int = CELL) -> np.ndarray:
    """A key or ciphertext as `size` bytes: its length in four bytes, itself, zeros. SEAL writes to files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "sealed")
        thing.save(str(path))
        saved = path.read_bytes()
    if len(saved) + 4 > size:
        raise ValueError(f"SEAL wrote {len(saved)} bytes where {size - 4} fit; is its Zstandard compression missing?")
    return np.frombuffer((len(saved).to_bytes(4, "little") + saved).ljust(size, b"\0"), np.uint8)


def _loaded(thing: Any, cell: np.ndarray) -> Any:
    content = cell.tobytes()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "sealed")
        path.write_bytes(content[4 : 4 + int.from_bytes(content[:4], "little")])
        thing.load(_context(), str(path))
    return thing
