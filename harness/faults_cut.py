"""Cuts this process off the coordination service, as a network that drops packets would.

No rights, firewall or proxy are needed: the descriptors of the connections to the service come to
mean sockets at whose other end nobody reads. Nothing is lost: what was sent meanwhile is passed on
when the cut ends, and what came waits in the kernel. So the protocol above sees a long silence.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Connection:
    """A connection that is cut: its descriptor, its own socket, and the two that stand for it."""

    fd: int
    own: socket.socket
    near: socket.socket
    far: socket.socket


def cut() -> Callable[[], None]:
    """Cut this process off; returns what ends that.

    Raises:
        RuntimeError: no connection to the coordination service was found.
    """
    from jax._src.distributed import global_state

    address = str(global_state.coordinator_address)
    connections = [_cut_one(fd, own) for fd, own in _connections(address)]
    if not connections:
        raise RuntimeError(f"this process has no connection to the coordination service {address}")

    def end() -> None:
        for connection in connections:
            _mend(connection)

    return end


def _connections(address: str) -> list[tuple[int, socket.socket]]:
    """Find descriptors whose other end is the service; with each, a second one of the same."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            own = socket.socket(fileno=os.dup(int(name)))
            with contextlib.ExitStack() as stack:
                stack.callback(own.close)
                if _is_to(own.getpeername(), address):
                    stack.pop_all()
                    found.append((int(name), own))
    return found


def _is_to(peer: object, address: str) -> bool:
    if isinstance(peer, tuple):
        return str(peer[1]) == address.rpartition(":")[2]
    return bool(peer) and address == f"unix:{peer}"


def _cut_one(fd: int, own: socket.socket) -> _Connection:
    near, far = socket.socketpair()
    near.setblocking(False)
    os.dup2(near.fileno(), fd, inheritable=False)
    return _Connection(fd, own, near, far)


def _mend(connection: _Connection) -> None:
    _pass_on(connection)
    os.dup2(connection.own.fileno(), connection.fd, inheritable=False)
    _pass_on(connection)
    # What came during the cut was announced then, and is announced once only, unless something
    # changes: to set the size of a buffer wakes whoever polls the socket.
    size = connection.own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    connection.own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
    for each in (connection.own, connection.near, connection.far):
        each.close()


def _pass_on(connection: _Connection) -> None:
    connection.far.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while data := connection.far.recv(1 << 16):
            connection.own.sendall(data)
