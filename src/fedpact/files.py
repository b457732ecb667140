"""Files that are whole or not there."""

import os
import pathlib


def write(file: pathlib.Path, content: bytes) -> None:
    """Write to a temporary file and rename it, so that an interrupted write leaves the old file."""
    beside = file.with_name(f".{file.name}.part")
    with open(beside, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(beside, file)
