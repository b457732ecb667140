"""The party's own process beside its Flower node: one `Site`, kept in memory, that answers what the node receives.

By default Flower starts a new process for every message, and runs in it the app that the server sent. Here the node is started
with `--isolation process`, which leaves that to somebody else: this process takes each message from the node, hands its bytes
to the Site and the answer back. Rows, state and compiled programs stay in memory, and the app that the server sent is neither
run nor unpacked: **what comes from the server is bytes, not code**.

    python -m fedpact.deploy.flower_party --party north --pact pact.py --folder state --node $$ --address 127.0.0.1:9094

It ends with the node: `start.sh` starts it and then becomes `flower-supernode`, so `$$` is the node's process.

The node's side is Flower's Runtime API (`AcquireTask` and what follows in `flwr.supernode.runtime`). It is no public interface of
flwr, so the extra `fedpact[flower]` names the versions that were tried.
"""

import argparse
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedpact.deploy.party import Site

POLL = 0.2  # seconds between two looks for a message
WATCH = 0.5  # seconds between two looks whether the node is still there


class Refused(Exception):
    """A message that is not for this site; its words go to the server, those of any other error stay in the site's log."""


def attend(answer: Callable[[bytes], bytes], party: str, address: str) -> None:
    """Answer every message that comes to the node at `address`, for ever."""
    door = _client(address)
    while True:
        try:
            task = door.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
            if task.token:
                _attend_to_one(answer, party, _client(address, RuntimeTokenHttpInterceptor(task.token)))
                continue
        except Exception:
            traceback.print_exc()
        time.sleep(POLL)


def _attend_to_one(answer: Callable[[bytes], bytes], party: str, node: RuntimeHttpClient) -> None:
    heart = HeartbeatSender(make_task_heartbeat_fn_http(node))  # an answer may take long
    heart.start()
    try:
        message, context, *_ = pull_task_input(node)
        try:
            content = RecordDict({"fedpact": ConfigRecord({"message": answer(_asked(party, message))})})
            reply, end = Message(content, reply_to=message), SubStatus.COMPLETED
        except Exception as error:
            traceback.print_exc()
            words = (
                str(error) if isinstance(error, Refused) else "the party's process failed: its log at the site says why"
            )
            reply, end = (
                Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, words), reply_to=message),
                SubStatus.FAILED,
            )
        push_message(node, reply, context)
        push_task_output(node, context, end, "")
    finally:
        heart.stop()
        node.close()


def _asked(party: str, message: Message) -> bytes:
    sent = message.content.config_records.get("fedpact", ConfigRecord())
    asked = sent.get("message")
    if not isinstance(asked, bytes):
        raise Refused("this site answers messages of fedpact only")
    if sent.get("party") != party:
        raise Refused(
            f"the server has registered this node's key for {sent.get('party')!r}, but it is the site of {party!r}"
        )
    return asked


def _client(address: str, *token: RuntimeTokenHttpInterceptor) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        address,
        insecure=True,  # the node listens to its own machine only
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), *token],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def end_with(node: int) -> None:
    """End this process as soon as the node's is no longer there."""
    while True:
        try:
            os.kill(node, 0)
        except ProcessLookupError:
            os._exit(0)
        time.sleep(WATCH)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fedpact.deploy.flower_party", description="The party's process.")
    parser.add_argument("--party", required=True, help="the party's name in the pact")
    parser.add_argument("--pact", required=True, help="the pact file")
    parser.add_argument("--folder", required=True, help="where the party's state is kept between messages")
    parser.add_argument("--policy", help="the party's own policy file, if it has one")
    parser.add_argument("--node", required=True, type=int, help="the node's process")
    parser.add_argument("--address", required=True, help="host:port of the node on this machine")
    given = parser.parse_args(arguments)
    threading.Thread(target=end_with, args=(given.node,), daemon=True).start()
    site = Site(given.pact, given.party, given.folder, given.policy)
    print(f"fedpact: the site of {given.party} is ready", file=sys.stderr, flush=True)
    attend(site.answer, given.party, given.address)


if __name__ == "__main__":
    main()
