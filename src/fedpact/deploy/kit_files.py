"""Where the owners of a kit keep a pact: its file, the folder of its state, and a party's policy."""

import dataclasses
import json
import pathlib

SETTINGS, POLICY = "local/fedpact.json", "local/policy.toml"  # in an owner's folder of a FLARE kit


@dataclasses.dataclass(frozen=True)
class PactFiles:
    """Paths of one pact on one machine: the pact file, the folder for its state, and a party's policy."""

    pact: pathlib.Path
    folder: pathlib.Path
    policy: pathlib.Path | None = None


def owners(kit: pathlib.Path) -> dict[str, PactFiles]:
    """The owners whose folders are in a kit's, by name, whichever engine it is for; of several pacts the one that ran last."""
    found = {}
    for folder in sorted(path for path in kit.iterdir() if path.is_dir()) if kit.is_dir() else ():
        if (folder / SETTINGS).is_file():
            stated = json.loads((folder / SETTINGS).read_text())
            entries = [_of_flare(folder, entry) for entry in stated.values()]
            found[folder.name] = max(entries, key=lambda files: _changed(files.folder))
        elif (folder / "start.sh").is_file() and (folder / "pact.py").is_file():
            policy = folder / "policy.toml"
            found[folder.name] = PactFiles(folder / "pact.py", folder / "state", policy if policy.is_file() else None)
    return found


def _of_flare(kit: pathlib.Path, entry: dict[str, str]) -> PactFiles:
    policy = entry.get("policy") or (POLICY if (kit / POLICY).is_file() else None)
    return PactFiles(kit / entry["pact"], kit / entry["folder"], kit / policy if policy else None)


def _changed(folder: pathlib.Path) -> float:
    return folder.stat().st_mtime if folder.exists() else 0.0
