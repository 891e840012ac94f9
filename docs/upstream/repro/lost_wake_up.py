"""A prefetcher that is stopped while its thread is between two lines parks for ever."""

import threading
import time

from ray.data._internal.block_batching.util import WaitBlockPrefetcher


class HeldUp(threading.Condition):
    """A lock that Ray's thread comes to late, as it may on a busy machine."""

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.5)
        return super().__enter__()


for wait_s in (0.2, 1.0):
    prefetcher = WaitBlockPrefetcher()
    time.sleep(1)  # its thread is parked
    parked, prefetcher._condition = prefetcher._condition, HeldUp()
    with parked:
        parked.notify()  # as prefetch_blocks does; the thread looks at its flag, then locks
    time.sleep(wait_s)
    prefetcher.stop()
    prefetcher._thread.join(timeout=2)
    state = "is parked for ever" if prefetcher._thread.is_alive() else "has ended"
    print(f"stopped {wait_s} s after a wake-up: its thread {state}")
