"""What an exchange costs on Flower: its own bare loop against ours, same bytes, same run, TLS and node keys, on this machine.

The nodes of the bare loop start the app that they are sent, a process per message, as Flower does by default. This takes some
minutes, so `make bench` leaves it out: `python -m benchmarks flower`.
"""

import importlib.util
import json
import os
import pathlib
import runpy
import statistics
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
STAND_INS = ROOT / "tests" / "flower_stand_ins"
PACT = pathlib.Path(__file__).with_name("flower_pact.py")
APP = """\
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("bare")
def bare(message: Message, context: Context) -> Message:
    sent = message.content.config_records["bare"]
    return Message(RecordDict({"bare": ConfigRecord({"message": sent["message"]})}), reply_to=message)
"""


def measure() -> str:
    if importlib.util.find_spec("flwr") is None:
        return "## Flower\n\nNot measured: the extra `flower` is not installed.\n"
    runpy.run_path(str(STAND_INS / "sitecustomize.py"))  # only the transport is measured
    from benchmarks.flower_pact import BARE, EXCHANGES, PARTIES
    from fedpact.deploy.flower.kit import write_kit
    from fedpact.deploy.flower.local_run import LocalFederation
    from fedpact.deploy.this_machine import free_port

    with tempfile.TemporaryDirectory() as folder:
        kit = pathlib.Path(folder) / "kit"
        write_kit(PACT, PARTIES + BARE, kit, server="127.0.0.1", port=free_port())
        (kit / "server/app/fedpact_flower/client.py").write_text(APP)
        for name in BARE:
            start = kit / name / "start.sh"
            lines = [line for line in start.read_text().splitlines() if "site_process" not in line]
            start.write_text("\n".join(lines).replace("--isolation process", "--isolation subprocess") + "\n")
        with LocalFederation(kit, {"PYTHONPATH": os.pathsep.join([str(STAND_INS), str(ROOT / "src")])}) as federation:
            federation.run()
        figures = json.loads((kit / "server" / "state" / "figures.json").read_text())
    lines = []
    for row in figures:
        theirs, ours = (1e3 * statistics.median(row[name]) for name in ("bare", "ours"))
        lines.append(f"| {row['size']:,} | {theirs:,.0f} | {ours:,.0f} | {ours / theirs:.2f} |\n")
    return (
        "## Flower\n\n"
        f"An exchange with {len(PARTIES)} parties that only hand numbers back, median of {EXCHANGES}, alternating in one run. "
        "The bare loop starts a process per message; both on the kit's nodes.\n\n"
        "| numbers | bare loop, ms | ours, ms | ratio |\n|---|---|---|---|\n" + "".join(lines)
    )
