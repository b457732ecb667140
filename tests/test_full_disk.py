"""A disk that is full, at a party or at the server: the run stops with a sentence, nothing that was saved is lost."""

import errno
import pathlib
import resource
from typing import Any

import numpy as np
import pacts
import pytest
from test_deploy import Loopback

from fedpact import files
from fedpact.deploy.server import serve
from fedpact.engines.remote import PartyLost
from fedpact.run.pact import Pact


@pytest.mark.parametrize("where", ["north", "server"])
def test_a_run_that_could_not_save_is_resumed(
    where: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pact = pacts.written(tmp_path, "FedAvg")
    pact.write_text(pact.read_text() + "options['privacy'] = None\n")
    undisturbed: Any = Pact(pact).run(Pact(pact).tables())
    monkeypatch.setattr("fedpact.run.loop.SAVE_SECONDS", 0.0)
    write, written = files.write, []

    def on_a_full_disk(file: pathlib.Path, content: bytes) -> None:
        written.append(file)
        if (tmp_path / where) in file.parents and sum((tmp_path / where) in each.parents for each in written) > 4:
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        write(file, content)

    for module in ("run.checkpoint", "deploy.party_run"):
        monkeypatch.setattr(f"fedpact.{module}.write", on_a_full_disk)
    with pytest.raises((OSError, PartyLost), match="No space left"):
        serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server")
    monkeypatch.setattr("fedpact.run.checkpoint.write", write)
    monkeypatch.setattr("fedpact.deploy.party_run.write", write)
    resumed: Any = serve(pact, Loopback.of(pact, tmp_path), tmp_path / "server", resume=True)
    assert resumed.rounds == undisturbed.rounds
    np.testing.assert_allclose(resumed.params["w"], undisturbed.params["w"], rtol=0, atol=1e-10)


def test_the_sentence_names_the_file_and_the_old_one_is_whole(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "state.npz"
    files.write(file, b"before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))  # Python ignores the signal, and the write fails
    try:
        with pytest.raises(OSError, match=r"make room for 1,000 bytes and resume the run.*state\.npz"):
            files.write(file, bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert file.read_bytes() == b"before"
