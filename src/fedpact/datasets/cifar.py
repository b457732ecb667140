"""CIFAR-10, from a file of JPEG images or from the original binary version."""

import hashlib
import io
import itertools
import pathlib
import tarfile

import numpy as np

from fedpact.datasets.encodings import Arrays
from fedpact.datasets.images import pixel_table
from fedpact.datasets.store import Fetch, Folder, load_files, own_file, read_arrays
from fedpact.extras import install
from fedpact.federation.table import Table

ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # as the CIFAR page gives it
BATCHES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
PIXELS = 3 * 32 * 32
WANTED = ("x_train", "y_train", "x_test", "y_test")
JPEG = "cifar10_jpeg.npz"


def cifar10(folder: Folder = None) -> tuple[Table, Table]:
    """CIFAR-10: 60,000 colour images of 32x32 pixels in 10 classes.

    - `folder`: contains `cifar10.npz` with x_train, y_train, x_test and y_test as bytes; or `cifar10_jpeg.npz`, concatenated JPEG
      images with their offsets, which needs pillow and differs from the originals by the compression (default: the environment
      variable FEDPACT_DATA, then the cache folder, then a download of 162 MiB from the CIFAR page, checked by its md5 sum).

    Returns two tables (train, test) of 50,000 and 10,000 rows:

    - `x` (rows, 3072): the red pixels row by row, then green, then blue, in [0, 1]; float32.
    - `y` (rows,): airplane, automobile, bird, cat, deer, dog, frog, horse, ship or truck, 0 to 9.

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    Krizhevsky: Learning multiple layers of features from tiny images, 2009.
    """
    images = own_file(JPEG, folder)
    if images is not None and own_file("cifar10.npz", folder) is None:
        arrays = decoded(images)
    else:
        arrays = load_files("cifar10", WANTED, ARCHIVE, _published, folder)
    train, test = (pixel_table(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in BATCHES)
    return train, test


def decoded(path: pathlib.Path) -> Arrays:
    """The pixels and labels in a file of JPEG images."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{path} holds JPEG images, which pillow reads: {install('images')}") from None
    names = [f"{what}_{part}" for part in BATCHES for what in ("jpeg", "offsets", "y")]
    arrays, out = read_arrays(path, tuple(names)), {}
    for part in BATCHES:
        ends, packed = arrays[f"offsets_{part}"], arrays[f"jpeg_{part}"]
        pictures = (packed[start:stop].tobytes() for start, stop in itertools.pairwise(ends))
        pixels = np.stack([np.asarray(Image.open(io.BytesIO(picture))) for picture in pictures])
        out |= {f"x_{part}": pixels.transpose(0, 3, 1, 2), f"y_{part}": arrays[f"y_{part}"]}
    return out


def _published(fetch: Fetch) -> Arrays:
    body = fetch(ARCHIVE)
    actual = hashlib.md5(body, usedforsecurity=False).hexdigest()
    if actual != MD5:
        raise ValueError(f"the archive came with the md5 sum {actual}, not {MD5}")
    out = {}
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        members = {pathlib.PurePosixPath(member.name).name: member for member in archive if member.isfile()}
        for part, files in BATCHES.items():
            records = np.concatenate([batch(_content(archive, members, file)) for file in files])
            out |= {f"x_{part}": records[:, 1:], f"y_{part}": records[:, 0]}
    return out


def _content(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], file: str) -> bytes:
    opened = archive.extractfile(members[file]) if file in members else None
    if opened is None:
        raise ValueError(f"the archive has no {file}")
    return opened.read()


def batch(body: bytes) -> np.ndarray:
    """The records of a binary batch: a label, then the pixels, one byte each."""
    if not body or len(body) % (1 + PIXELS):
        raise ValueError(f"no batch of CIFAR-10: {len(body)} bytes are not a number of records of {1 + PIXELS}")
    return np.frombuffer(body, np.uint8).reshape(-1, 1 + PIXELS)
