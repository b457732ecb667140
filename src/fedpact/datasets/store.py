"""Where data files are read from: a folder of the user's, else the cache, else their public source.

The order is `<folder>/<name>.npz` with folder= or FEDPACT_DATA, then `<cache folder>/data/<name>.npz`, then a download
that is encoded and saved in the cache.
"""

import http.client
import os
import pathlib
import secrets
import sys
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fedpact.datasets.encodings import Arrays, Raw
from fedpact.precision import cache_folder

Folder = str | os.PathLike[str] | None
Fetch = Callable[[str], bytes]

VARIABLE = "FEDPACT_DATA"
AGENT = "fedpact (federated learning library; Python urllib)"
TIMEOUT_SECONDS = 30
LARGEST_BYTES = 256 * 2**20  # the largest archive, CIFAR-10's, has 162 MiB


class Source(Protocol):
    """One public file, and how it is read."""

    @property
    def url(self) -> str: ...

    def read(self, body: bytes) -> Raw: ...


def load(
    name: str,
    wanted: tuple[str, ...],
    source: Source,
    encode: Callable[[Raw], Arrays],
    folder: Folder,
) -> Arrays:
    """The arrays `wanted` of the data set `name`, whose source is one public file."""
    return load_files(name, wanted, source.url, lambda fetch: encode(source.read(fetch(source.url))), folder)


def load_files(
    name: str, wanted: tuple[str, ...], source: str, get: Callable[[Fetch], Arrays], folder: Folder
) -> Arrays:
    """The arrays `wanted` of the data set `name`, which `get` downloads from the address `source`."""
    own, origin = _own_folder(folder)
    file = f"{name}.npz"
    kept = cache_folder() / "data" / file
    for path in (own / file if own else None, kept):
        if path is not None and path.is_file():
            return read_arrays(path, wanted)
    try:
        _say(f"fetching {name} from {source}")
        arrays = get(_fetch)
    except (OSError, ValueError, http.client.HTTPException, zipfile.BadZipFile, zlib.error) as error:
        raise FileNotFoundError(
            f"the data set {name} could not be loaded. Looked for:\n"
            f"  {own / file if own else file}: {f'not there ({origin})' if own else f'{VARIABLE} is not set'}\n"
            f"  {kept}: not there (the cache folder)\n"
            f"  {source}: {error or type(error).__name__}\n"
            f"Either set {VARIABLE} to a folder that has {file}; or put {file} into {kept.parent}; "
            "or run once with an internet connection."
        ) from error
    try:
        _keep(kept, arrays)
        _say(f"saved {name} in {kept}")
    except OSError as error:
        _say(f"could not save {name} in {kept} ({error}); FEDPACT_CACHE moves the cache folder")
    return {key: arrays[key] for key in wanted}


def own_file(name: str, folder: Folder) -> pathlib.Path | None:
    """The file of that name in the user's folder, if there is one."""
    own, _ = _own_folder(folder)
    return own / name if own is not None and (own / name).is_file() else None


def _own_folder(folder: Folder) -> tuple[pathlib.Path | None, str]:
    """The user's folder, and whether FEDPACT_DATA or folder= names it."""
    named, origin = (os.environ.get(VARIABLE), VARIABLE) if folder is None else (folder, "folder=")
    if not named:
        return None, origin
    path = pathlib.Path(named).expanduser()
    if not path.is_dir():
        raise NotADirectoryError(
            f"{origin} says {str(named)!r}, which is not a folder; name one that contains the data files"
        )
    return path, origin


def _fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": AGENT})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        body = response.read(LARGEST_BYTES + 1)
    if len(body) > LARGEST_BYTES:
        raise ValueError(f"the download has more than {LARGEST_BYTES >> 20} MiB, so it cannot be this data set")
    return body


def read_arrays(path: pathlib.Path, wanted: tuple[str, ...]) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in wanted}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not an npz file with the arrays {', '.join(wanted)} ({error}); remove or replace it"
        ) from error


def _keep(path: pathlib.Path, arrays: dict[str, Any]) -> None:
    """Write to a temporary file, then rename it to `path`, so that no reader sees an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _say(line: str) -> None:
    print(f"fedpact: {line}", file=sys.stderr, flush=True)
