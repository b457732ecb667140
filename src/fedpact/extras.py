"""How to install what an extra of fedpact needs, for error messages."""

import importlib.metadata
import re
import shlex


def install(extra: str) -> str:
    """The pip command for the libraries of an extra. It names them one by one, so that it works wherever fedpact came from."""
    try:
        stated = importlib.metadata.requires("fedpact") or ()
    except importlib.metadata.PackageNotFoundError:  # run from its sources, without being installed
        return f"pip install '.[{extra}]', in a checkout of fedpact"
    mark = re.compile(rf"extra\s*==\s*['\"]{extra}['\"]")
    lines = (line.partition(";") for line in stated)
    names = [shlex.quote(name.strip()) for name, _, condition in lines if mark.search(condition)]
    return " ".join(["pip install", *names])
