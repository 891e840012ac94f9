"""Messages over a byte stream: eight bytes of length, then the content."""

from __future__ import annotations

import socket
import struct

_LENGTH = struct.Struct("<Q")


def frame(content: bytes) -> bytes:
    """Put the length before the content."""
    return _LENGTH.pack(len(content)) + content


class Inbox:
    """Collects chunks until a message is whole. One message is under way at a time."""

    def __init__(self) -> None:
        self._chunks = bytearray()

    def add(self, chunk: bytes) -> bytes | None:
        """Take a chunk; give the message once it is whole."""
        self._chunks += chunk
        if len(self._chunks) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._chunks)
        if len(self._chunks) < _LENGTH.size + length:
            return None
        message = bytes(self._chunks[_LENGTH.size : _LENGTH.size + length])
        del self._chunks[: _LENGTH.size + length]
        return message


def receive(source: socket.socket) -> bytes | None:
    """Wait for one message; `None` when the other side is gone."""
    inbox = Inbox()
    try:
        while chunk := source.recv(1 << 20):
            message = inbox.add(chunk)
            if message is not None:
                return message
    except ConnectionError:
        pass
    return None
