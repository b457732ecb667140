"""A network that stalls: a proxy on loopback between a site and the server."""

import contextlib
import socket
import threading


class Proxy:
    """Forwards every connection to a port of this machine; while it stalls, connections stay open and nothing passes."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._flows = threading.Event()
        self._flows.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self, seconds: float) -> None:
        """Let nothing through for so long; returns at once."""
        self._flows.clear()
        threading.Timer(seconds, self._flows.set).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listening.accept()
            except OSError:
                return  # closed
            try:
                outside = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                inside.close()
                continue
            for one, other in ((inside, outside), (outside, inside)):
                threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self._flows.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
