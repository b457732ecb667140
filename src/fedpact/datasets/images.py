"""MNIST, and the idx format of its public files."""

import gzip
import hashlib
import math

import numpy as np

from fedpact.datasets.encodings import Arrays
from fedpact.datasets.store import Fetch, Folder, load_files
from fedpact.federation.table import Table

SITE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {  # for each array its file, and the md5 sum of that file
    "x_train": ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "y_train": ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    "x_test": ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    "y_test": ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
}


def mnist(folder: Folder = None) -> tuple[Table, Table]:
    """MNIST: 70,000 handwritten digits of 28x28 pixels in 10 classes.

    - `folder`: contains `mnist.npz` with x_train, y_train, x_test and y_test as bytes, pixels 0 to 255 (default: the environment
      variable FEDPACT_DATA, then the cache folder, then a download of PyTorch's copy of the original files).

    Returns two tables (train, test) of 60,000 and 10,000 rows:

    - `x` (rows, 784): the pixels, row by row, from 0 = paper to 1 = ink; float32 to save memory, float64 once in a problem.
    - `y` (rows,): the digit, 0 to 9.

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    MNIST, LeCun, Cortes and Burges, from NIST's Special Databases 1 and 3; CC BY-SA 3.0 as commonly stated.
    """
    arrays = load_files("mnist", tuple(FILES), SITE, _published, folder)
    train, test = (pixel_table(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test"))
    return train, test


def pixel_table(pixels: np.ndarray, digits: np.ndarray) -> Table:
    return Table(x=pixels.reshape(len(pixels), -1) / np.float32(255), y=digits.astype(int))


def _published(fetch: Fetch) -> Arrays:
    return {array: idx(gzip.decompress(_checked(fetch, *FILES[array]))) for array in FILES}


def _checked(fetch: Fetch, file: str, md5: str) -> bytes:
    body = fetch(SITE + file)
    actual = hashlib.md5(body, usedforsecurity=False).hexdigest()
    if actual != md5:
        raise ValueError(f"{file} came with the md5 sum {actual}, not {md5}")
    return body


def idx(body: bytes) -> np.ndarray:
    """The array of bytes in an idx file.

    Header: two zeros, 8 for unsigned bytes, the number of axes; then the length of each axis, 4 bytes, highest first.
    """
    kind, axes = body[:3], int.from_bytes(body[3:4])
    entries = 4 + 4 * axes
    shape = [int.from_bytes(body[at : at + 4]) for at in range(4, entries, 4)]
    if kind != b"\0\0\x08" or len(body) != entries + math.prod(shape):
        raise ValueError(f"no idx file of unsigned bytes: it has {len(body)} bytes and begins with {body[:4].hex()}")
    return np.frombuffer(body, np.uint8, offset=entries).reshape(shape)
