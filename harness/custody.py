"""What a gang has in the world: a directory, marked processes, and a guardian over both."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import guardian

MARK_NAME = "GANG_MARK"


class Custody:
    """A fresh directory, a mark for the environment of processes, and a guardian over both.

    Whatever holds the mark when this process ends, however it ends, is killed by the guardian, and
    the directory is removed.

    Attributes:
        directory: a short path, so that unix sockets fit into it; only this user may enter.
        mark: name and value of the environment variable that processes must have.
    """

    def __init__(self, mark: str | None = None) -> None:
        self._holds = False
        self.mark = (MARK_NAME, mark or secrets.token_hex(8))
        self.directory = Path(tempfile.mkdtemp(prefix="gang-", dir=_short_temp_dir()))
        # The guardian of a gang inside a rank must survive the end of that rank's gang.
        environment = {k: v for k, v in os.environ.items() if k != MARK_NAME}
        try:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, self._text, str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self.directory.rmdir()
            raise
        # For a moment after exec a process shows neither arguments nor environment; who ends this
        # process with its children just then would take the guardian for one of them.
        while not guardian.is_guardian(self._guardian.pid) and self._guardian.poll() is None:
            time.sleep(0.0005)

    @property
    def _text(self) -> str:
        return "=".join(self.mark)

    def new_directory(self, name: str) -> Path:
        """Make a directory inside; what cleans temporary files may have removed the outer one."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        directory = self.directory / name
        directory.mkdir()
        return directory

    def kill(self, after_s: float = 0.0) -> None:
        """SIGKILL every process of this machine that holds the mark and has not ended by then."""
        deadline_s = time.monotonic() + after_s
        while time.monotonic() < deadline_s and guardian.marked(self._text.encode()):
            time.sleep(0.01)
        guardian.kill_marked(self._text.encode())

    def hold(self) -> None:
        """Have the guardian look at what runs now, and end that even if it loses its mark."""
        self._holds = True
        self._tell(b"l")

    def close(self) -> None:
        """Kill, remove the directory, and let the guardian go. May be called again."""
        assert self._guardian.stdin is not None
        if self._guardian.stdin.closed:
            return
        if not self._holds:  # otherwise only the guardian knows what it holds
            self.kill()
            shutil.rmtree(self.directory, ignore_errors=True)
            self._tell(b"d")
        self._guardian.stdin.close()
        self._guardian.wait()

    def _tell(self, letter: bytes) -> None:
        assert self._guardian.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guardian.stdin.write(letter)


def _short_temp_dir() -> str:
    # The path of a unix socket has 107 bytes at most, and Ray needs some 80 of them. JAX takes no
    # path that is not UTF-8, which any may be where the locale has another encoding.
    directory = tempfile.gettempdir()
    return directory if len(directory) <= 20 and directory.isascii() else "/tmp"  # noqa: S108 - mkdtemp makes it private
