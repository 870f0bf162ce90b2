"""A proxy on loopback that loses what it should have passed on."""

from __future__ import annotations

import random
import socket
import threading
from typing import Self


class CuttingProxy:
    """Passes bytes on between clients and a server, and now and then cuts a connection.

    Args:
        port: the server's, on 127.0.0.1.
        answers: share of the server's answers that are lost with their connection.
        questions: share of what clients send that is lost with it.

    Attributes:
        port: its own.
        cuts: how many connections it cut.
        quiet: cut nothing.
    """

    def __init__(self, port: int, *, answers: float = 0.0, questions: float = 0.0) -> None:
        self._to = port
        self._answers = answers
        self._questions = questions
        self._chance = random.Random(5)
        self.cuts = 0
        self.quiet = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for found in [self._listening, *self._open]:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            found.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._open += [client, server]
            for pair in ((client, server, self._questions), (server, client, self._answers)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, share: float) -> None:
        try:
            while data := source.recv(1 << 16):
                if not self.quiet and self._chance.random() < share:
                    self.cuts += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
