"""The party's own process beside its Flower node: one `Site`, kept in memory, that replies to what the node receives.

By default Flower starts a new process for every message, and runs in it the app that the server sent. Here the node is started
with `--isolation process`, which leaves that to another process, this one: it takes each message from the node, passes its bytes
to the Site and returns the reply. Rows, state and compiled programs stay in memory, and the app that the server sent is neither
run nor unpacked: **what comes from the server is bytes, not code**.

    python -m fedpact.deploy.flower.site_process --party north --pact pact.py --folder state --node $$ --address 127.0.0.1:9094

It ends with the node: `start.sh` starts it and then becomes `flower-supernode`, so `$$` is the node's process.

The node's side is Flower's Runtime API (`AcquireTask` and what follows in `flwr.supernode.runtime`). It is not a public interface
of flwr, so the extra `fedpact[flower]` pins the versions that were tested.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedpact.deploy.flower.pace import Pace, pull_soon
from fedpact.deploy.party import Site
from fedpact.deploy.status import start_log

MESSAGE_POLL, SLOWEST_POLL = (
    0.1,
    1.0,
)  # seconds between two requests for a message, soon after the last one and long after it
NODE_POLL = 0.5  # seconds between two checks whether the node still runs


class MessageRejected(Exception):
    """A message that is not for this site. Its text is sent to the server; that of any other error stays in the site's log."""


def handle_messages(answer: Callable[[bytes], bytes], party: str, address: str) -> None:
    """Reply to every message that the node receives; never returns.

    - `answer`: computes the reply to a message.
    - `party`: the party's name; messages for another are rejected.
    - `address`: `host:port` of the node on this machine.
    """
    client, pace, next_token = _client(address), Pace(MESSAGE_POLL, SLOWEST_POLL), ""

    def acquire() -> str:
        return client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])).token

    while True:
        try:
            token, next_token = next_token or acquire(), ""
            if token:
                pace.again()
                node = _client(address, RuntimeTokenHttpInterceptor(token))
                next_token = handle_message(answer, party, node, acquire)
                continue
        except Exception:
            traceback.print_exc()
        pace.wait()


def handle_message(
    answer: Callable[[bytes], bytes], party: str, node: RuntimeHttpClient, acquire: Callable[[], str]
) -> str:
    """Reply to one message, unless the node has the next one before all of this one has come.

    A node announces a message before it has all of its parts, and Flower waits for them for two hours. Where the server was
    killed meanwhile they never come; the node gives the message up and takes the next, without a word to this process.

    - `node`: the client with the token of the message's task. `acquire`: the token of the next task, or "".

    Returns "", or the token of the next task.
    """
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(node))  # a reply may take long
    heartbeat.start()
    try:
        pulled: Future[tuple[Any, ...]] = Future()
        threading.Thread(target=_pull, args=(node, pulled), daemon=True).start()
        while wait([pulled], MESSAGE_POLL).not_done:
            token = acquire()
            if token:
                print("fedpact: a message did not come, and the next one is there", file=sys.stderr, flush=True)
                given_up = PushTaskOutputRequest(sub_status=SubStatus.FAILED, details="its message did not come")
                with contextlib.suppress(Exception):
                    node.PushTaskOutput(given_up)
                return token
        message, context, *_ = pulled.result()
        try:
            content = RecordDict({"fedpact": ConfigRecord({"message": answer(_message_bytes(party, message))})})
            reply, status = Message(content, reply_to=message), SubStatus.COMPLETED
        except Exception as error:
            traceback.print_exc()
            rejected = isinstance(error, MessageRejected)
            reason = str(error) if rejected else "the party's process failed: its log at the site says why"
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
            status = SubStatus.FAILED
        push_message(node, reply, context)
        push_task_output(node, context, status, "")
        return ""
    finally:
        heartbeat.stop()
        node.close()


def _pull(node: RuntimeHttpClient, pulled: "Future[tuple[Any, ...]]") -> None:
    try:
        pulled.set_result(pull_task_input(node))
    except Exception as error:
        pulled.set_exception(error)


def _message_bytes(party: str, message: Message) -> bytes:
    record = message.content.config_records.get("fedpact", ConfigRecord())
    content = record.get("message")
    if not isinstance(content, bytes):
        raise MessageRejected("this site answers messages of fedpact only")
    if record.get("party") != party:
        raise MessageRejected(
            f"the server has registered this node's key for {record.get('party')!r}, but it is the site of {party!r}"
        )
    return content


def _client(address: str, *token: RuntimeTokenHttpInterceptor) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        address,
        insecure=True,  # the node listens on its own machine only
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), *token],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def exit_with_node(node: int) -> None:
    """Exit this process as soon as the node's process (its id) has ended."""
    while True:
        try:
            os.kill(node, 0)
        except ProcessLookupError:
            os._exit(0)
        time.sleep(NODE_POLL)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fedpact.deploy.flower.site_process", description="The party's process."
    )
    parser.add_argument("--party", required=True, help="the party's name in the pact")
    parser.add_argument("--pact", required=True, help="the pact file")
    parser.add_argument("--folder", required=True, help="where the party's state is kept between messages")
    parser.add_argument("--policy", help="the party's own policy file, if it has one")
    parser.add_argument("--node", required=True, type=int, help="the node's process id")
    parser.add_argument("--address", required=True, help="host:port of the node on this machine")
    args = parser.parse_args()
    threading.Thread(target=exit_with_node, args=(args.node,), daemon=True).start()
    # It ends with its node, which gets Ctrl-C too. Flower sends SIGINT where a node that began anew does not know a task.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_log()
    pull_soon()
    site = Site(args.pact, args.party, args.folder, args.policy)
    print(f"fedpact: the site of {args.party} is ready", file=sys.stderr, flush=True)
    handle_messages(site.answer, args.party, args.address)


if __name__ == "__main__":
    main()
