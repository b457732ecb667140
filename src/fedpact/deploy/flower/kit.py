"""`fedpact deploy flower`: a folder for the server and one for each site, with keys, certificates and start scripts."""

import pathlib
import re
import shutil
from collections.abc import Sequence

from fedpact.__about__ import VERSION
from fedpact.deploy.engine import DEFAULT_WAIT, ENGINES, check_kit_arguments
from fedpact.deploy.flower import require_flower, templates
from fedpact.deploy.flower.keys import VALID_DAYS, CertificateAuthority, node_key_pair
from fedpact.deploy.kit_words import SECURE_SUMS
from fedpact.deploy.service_files import write_service_files
from fedpact.files import OWN_FOLDER, make_private, private_folder, write

POLICY = "policy.toml"  # a site's own policy file, used if it exists
REGISTERED = "flower/registered"  # exists as soon as register.sh has succeeded


def write_kit(
    pact: pathlib.Path,
    parties: Sequence[str],
    out: pathlib.Path,
    *,
    server: str = "localhost",
    port: int = ENGINES["flower"].default_port,
    wait: float = DEFAULT_WAIT,
) -> pathlib.Path:
    """Write what a server and its sites need to run a pact on Flower.

    `out/server` is for the server, `out/<party>` for each site, `out/README.md` has the four commands. The folders hold private
    keys: only their owner can read what is in `out` (folders 0700, files 0600).

    - `pact`: the pact file; copied into every folder.
    - `parties`: the parties' names, those of the pact: letters, digits, `-` and `_`.
    - `out`: the folder to write; must be empty or not exist yet.
    - `server`: host name or IPv4 address under which sites reach the server; it is in the server's certificate (default:
      localhost).
    - `port`: the server's TCP port (default: 9092).
    - `wait`: seconds that the server waits for all parties' replies to one message (default: 600).

    Returns the path of the README.

    Raises ModuleNotFoundError where Flower is not installed, FileNotFoundError where there is no pact file, FileExistsError
    where `out` is not empty, and ValueError where another argument is invalid.
    """
    require_flower()
    check_kit_arguments(pact, parties, out, port=port, wait=wait, reserved=("server",))
    if not re.fullmatch(r"[A-Za-z0-9.-]+", server):
        raise ValueError(f"server={server!r}: must be the host name or IPv4 address under which sites reach the server")
    values = {
        "version": VERSION,
        "server": server,
        "port": port,
        "policy": POLICY,
        "days": VALID_DAYS,
        "wait": float(wait),
    }
    private_folder(out).chmod(OWN_FOLDER)  # before the first key is in it
    authority = CertificateAuthority()
    _write_server(private_folder(out / "server"), pact, parties, authority, values)
    for party in parties:
        site = private_folder(out / party)
        private, public = node_key_pair()
        write(site / "node.key", private)
        (out / "server" / "keys" / f"{party}.pub").write_bytes(public)
        (site / "ca.crt").write_bytes(authority.certificate)
        shutil.copy(pact, site / "pact.py")
        purpose = f"The site of {party}: its own process, and Flower's supernode."
        _write_script(site / "start.sh", purpose, templates.SITE_START, party=party, **values)
        write_service_files(site, party, "flower", "./start.sh")
    readme = out / "README.md"
    sums = SECURE_SUMS.format(policy=POLICY)
    readme.write_text(templates.README.format(names=", ".join(parties), first=parties[0], secure_sums=sums, **values))
    make_private(out)
    return readme


def _write_server(
    folder: pathlib.Path,
    pact: pathlib.Path,
    parties: Sequence[str],
    authority: CertificateAuthority,
    values: dict[str, object],
) -> None:
    server = str(values["server"])
    (folder / "ca.crt").write_bytes(authority.certificate)
    key, certificate = authority.sign_server(server)
    write(folder / "server.key", key)
    (folder / "server.crt").write_bytes(certificate)
    shutil.copy(pact, folder / "pact.py")
    private_folder(folder / "keys")
    bind = "127.0.0.1" if server in ("localhost", "127.0.0.1") else "0.0.0.0"
    purpose = "The server: Flower's superlink."
    _write_script(folder / "start.sh", purpose, templates.SERVER_START, bind=bind, **values)
    write_service_files(folder, "server", "flower", "./start.sh", int(str(values["port"])))
    purpose = "Registers the parties' keys at the server; once, while start.sh runs."
    register = {"parties": " ".join(parties), "registered": REGISTERED}
    _write_script(folder / "register.sh", purpose, templates.SERVER_REGISTER, **register)
    purpose = "One run, or with --resume the rest of the last one; the result is in state."
    _write_script(folder / "run.sh", purpose, templates.SERVER_RUN, **values)
    app = private_folder(folder / "app" / "fedpact_flower")
    (app.parent / "pyproject.toml").write_text(templates.PROJECT.format(**values))
    (app / "__init__.py").write_text("")
    (app / "server.py").write_text(templates.SERVER_APP)
    (app / "client.py").write_text(templates.CLIENT_APP)


def _write_script(path: pathlib.Path, purpose: str, body: str, **values: object) -> None:
    header = templates.HEADER.format(purpose=purpose, environment=templates.ENVIRONMENT)
    path.write_text(header + body.format(**values))
    path.chmod(0o700)
