"""Stops its parent for a time, since a stopped process cannot let itself go on: run as a script.

    python -I -S faults_beside.py PID SECONDS

It ends the stop also when asked to end early; if it is killed, PID stays stopped.
"""

import os
import signal
import sys
import time


def main() -> None:
    """Stop, wait, continue."""
    pid, seconds = int(sys.argv[1]), float(sys.argv[2])
    process = os.pidfd_open(pid)
    if os.getppid() != pid:
        return  # it has died in the meantime
    try:
        signal.pidfd_send_signal(process, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        signal.pidfd_send_signal(process, signal.SIGCONT)


if __name__ == "__main__":
    main()
