"""Files that are whole or not there, and that only their owner reads."""

import errno
import os
import pathlib

OWN_FILE, OWN_FOLDER = 0o600, 0o700  # nobody but the owner reads, writes or enters
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # the disk, the quota, or what the process may write


def write(file: pathlib.Path, content: bytes, durable: bool = True) -> None:
    """Write to a temporary file and rename it, so that an interrupted write leaves the old file. Only the owner can read it.

    durable: wait until it is on the disk, so that it outlives a power cut (default: True).

    Raises OSError; where there is no room, with the file and the way out.
    """
    beside = file.with_name(f".{file.name}.part")
    try:
        with open(beside, "wb", opener=only_for_owner) as opened:
            os.fchmod(opened.fileno(), OWN_FILE)  # one that an interrupted write left may have another mode
            opened.write(content)
            if durable:
                opened.flush()
                os.fsync(opened.fileno())
    except OSError as error:
        if error.errno not in FULL:
            raise
        why = (
            f"{error.strerror}; what was saved before is whole: make room for {len(content):,} bytes and resume the run"
        )
        raise OSError(error.errno, why, str(file)) from None
    os.replace(beside, file)


def private_folder(folder: pathlib.Path) -> pathlib.Path:
    """The folder, made with those above it where they are missing; only the owner can enter what is made here."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=OWN_FOLDER, exist_ok=True)
    return folder


def make_private(folder: pathlib.Path) -> None:
    """Let nobody but the owner read, write or enter a folder and all that is in it; what is executable remains so."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & OWN_FOLDER)


def only_for_owner(path: str, flags: int) -> int:
    """For `open(..., opener=...)`: a file that is made here can be read and written by its owner only."""
    return os.open(path, flags, OWN_FILE)
