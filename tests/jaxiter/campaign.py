"""Random scenarios on real processes: `python -m tests.jaxiter.campaign --seed 1 --scenarios 100`.

Each scenario draws splits, sizes, options and a fault from a seed of its own, runs on every
process and is checked: no hang, no error on one process alone, no lost or repeated row. A failure
prints its seed; `--only SEED --processes N` re-runs it.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from harness import Died, Gang, Outcome, Returned
from tests.jaxiter.jobs import Observed

FAULTS = ("none",) * 8 + (
    "source fails",
    "source fails",
    "bad column",
    "one leaves",
    "all leave",
    "schema differs",
    "options differ",
    "slow source",
    "slow consumer",
    "dies",
    "never comes",
    "comes late",
    "invalid option",
)
TIMEOUT_S = 2.0
DEADLINE_S = 60.0
STALL_S = 12.0


@dataclass
class Scenario:
    """One case; the same on all processes, each of which plays its own part."""

    seed: int
    processes: int
    sizes: list[list[int]]
    options: dict[str, Any]
    fault: str
    who: int
    at: int
    other_at: int
    epochs: int
    extra: dict[str, Any] = field(default_factory=dict)

    def rows(self, process: int) -> int:
        """Rows of a process's source."""
        return sum(self.sizes[process])


def draw(seed: int, processes: int) -> Scenario:
    """Draw a scenario."""
    rng = random.Random(seed)
    batch_size = 2 * rng.randint(1, 4)  # two devices a process
    even = rng.random() < 0.3
    most = rng.choice([0, 6, 30, 200])
    sizes: list[list[int]] = []
    for process in range(processes):
        if even and process:
            sizes.append(list(sizes[0]))
            continue
        rows = rng.randint(0, most)
        emitted = []
        while rows:
            emitted.append(min(rows, rng.choice([0, 1, 2, 3, batch_size, 3 * batch_size, 50])))
            rows -= emitted[-1]
        sizes.append(emitted)
    ends = rng.choice(["pad", "pad", "drop", "drop", "equal"])
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "prefetch_batches": rng.choice([0, 1, 2, 10]),
        "prefetch_to_device": rng.choice([1, 2, 5]),
        "sync_timeout_s": TIMEOUT_S if rng.random() < 0.5 else 30.0,
    }
    if ends == "pad":
        options["paddings"] = -1
    if ends == "drop":
        options["drop_last"] = True
    fault = rng.choice(FAULTS)
    if fault in ("dies", "never comes"):
        options["sync_timeout_s"] = TIMEOUT_S
    if fault == "never comes" or rng.random() < 0.2:
        options["name"] = f"scenario {seed}"
    return Scenario(
        seed,
        processes,
        sizes,
        options,
        fault,
        # Process 0 hosts the service: its death ends the job, with or without an iterator.
        who=rng.randint(1 if fault == "dies" else 0, processes - 1),
        at=rng.randint(0, 12),
        other_at=rng.randint(0, 3),
        epochs=rng.choice([1, 1, 2]),
    )


def play(scenario: Scenario) -> list[Observed]:
    """Play this process's part; runs on a rank."""
    import jax
    import numpy as np

    import jaxiter
    from tests.jaxiter.jobs import consume

    me = jax.process_index()
    mine = me == scenario.who
    fault = scenario.fault
    sizes = scenario.sizes[me]
    rng = random.Random(f"{scenario.seed} {me}")

    def source() -> Any:
        first = 100_000 * me
        for index, size in enumerate(sizes):
            if mine and index == scenario.at and fault == "source fails":
                raise KeyError("drawn")
            if mine and index == scenario.at and fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "slow source" and rng.random() < 0.2:
                time.sleep(0.02)
            rows: Any = np.arange(first, first + size, dtype=np.int32)
            if mine and index >= scenario.at and fault == "bad column" and size:
                rows = rows.astype(str)
            if mine and fault == "schema differs":
                rows = rows.astype(np.float32)
            yield {"x": rows}
            first += size
        if mine and scenario.at >= len(sizes) and fault == "source fails":
            raise KeyError("drawn")

    def before_step(_: int) -> None:
        if fault == "slow consumer" and rng.random() < 0.2:
            time.sleep(0.02)

    options = dict(scenario.options)
    if mine and fault == "options differ":
        options["batch_size"] *= 2
    if mine and fault == "never comes":
        return []
    if mine and fault == "comes late":
        time.sleep(0.5)
    if mine and fault == "invalid option":
        try:
            jaxiter.iter_jax_batches(source, **{**options, "batch_size": 0})
        except jaxiter.OptionError:
            return []
    leaves = fault == "all leave" or (mine and fault == "one leaves")
    batches = jaxiter.iter_jax_batches(source, **options)
    seen = []
    for _ in range(scenario.epochs):
        seen.append(
            consume(
                batches,
                leave_after=scenario.at if leaves else None,
                collective=fault not in ("one leaves", "dies"),
                before_step=before_step,
            )
        )
        if fault in ("one leaves", "dies") or seen[-1].error:
            break
    return seen


def problems(scenario: Scenario, outcomes: list[Outcome]) -> list[str]:
    """Return what is wrong with the outcomes of a scenario, in words."""
    found = []
    seen: list[list[Observed]] = []
    for process, outcome in enumerate(outcomes):
        if isinstance(outcome, Returned):
            seen.append(outcome.value)
            # Where nobody answers, a wait for a decision takes its time to end.
            if outcome.left_threads and scenario.fault != "never comes":
                found.append(f"process {process} left threads {outcome.left_threads}")
        elif scenario.fault == "dies" and isinstance(outcome, Died) and process == scenario.who:
            continue
        else:
            found.append(outcome.describe())
    if found:
        return found
    for epoch in range(max(map(len, seen))):
        found += _epoch_problems(scenario, [s[epoch] for s in seen if epoch < len(s)], epoch)
    return found


def _epoch_problems(scenario: Scenario, seen: list[Observed], epoch: int) -> list[str]:
    found = []
    fault = scenario.fault
    alone = fault in ("one leaves", "dies")
    errors = {s.error for s in seen}
    counts = {len(s.shapes) for s in seen}
    if not alone:
        if len(errors) > 1 or len({s.message for s in seen}) > 1:
            found.append(f"errors differ: {[(s.error, s.message) for s in seen]}")
        if len(counts) > 1:
            found.append(f"numbers of batches differ: {[len(s.shapes) for s in seen]}")
        if len({tuple(s.shapes) for s in seen}) > 1 or len({tuple(s.sums) for s in seen}) > 1:
            found.append("shapes or sums differ")
    expected = _expected(scenario)
    allowed = _allowed(scenario, expected)
    found += [
        f"{error or 'no error'} where {sorted(allowed)} may be: {seen[0].message}"
        for error in errors - allowed
    ]
    if "" in errors and not alone and fault != "all leave" and len(seen[0].shapes) != expected:
        found.append(f"{len(seen[0].shapes)} batches, expected {expected}")
    for s in seen:
        found += _row_problems(s)
    return [f"epoch {epoch}: {text}" for text in found]


def _row_problems(seen: Observed) -> list[str]:
    found = []
    real = [row for batch in seen.rows for row in batch if row != -1]
    if real:
        first = 100_000 * (real[0] // 100_000)
        if real != list(range(first, first + len(real))):
            found.append(f"rows lost, repeated or out of order: {real}")
    found += [
        f"padding before real rows: {batch}"
        for batch in seen.rows
        if -1 in batch and any(row != -1 for row in batch[batch.index(-1) :])
    ]
    books = seen.stats
    if books.rows_held or books.rows_read != (
        books.rows_delivered + books.rows_dropped + books.rows_discarded
    ):
        found.append(f"the books do not balance: {books}")
    if books.rows_delivered != len(real):
        found.append(f"{books.rows_delivered} rows in the books, {len(real)} delivered")
    return found


def _expected(scenario: Scenario) -> int | None:
    """Return the number of batches without a fault; None if uneven shards are an error."""
    size: int = scenario.options["batch_size"]
    rows = [scenario.rows(process) for process in range(scenario.processes)]
    if "drop_last" in scenario.options:
        return min(row // size for row in rows)
    if "paddings" in scenario.options:
        return max(-(-row // size) for row in rows)
    if len(set(rows)) > 1 or (rows[0] % size) % 2:
        return None
    return -(-rows[0] // size)


def _allowed(scenario: Scenario, expected: int | None) -> set[str]:
    """Return the errors that a process may see; the empty one is a regular end."""
    regular = {"UnevenError"} if expected is None else {""}
    match scenario.fault:
        case "options differ":
            return {"MismatchError"}
        case "source fails" | "bad column":
            # Where it strikes beyond the end, or ends come first, it changes nothing.
            kind = "SourceError" if scenario.fault == "source fails" else "DataError"
            return {kind, *regular}
        case "schema differs":
            return {"MismatchError", *regular}
        case "one leaves":
            return {"", "PeerLeftError", *regular}
        case "all leave":
            return {"", *regular}
        case "invalid option":
            return {"OptionError"}
        case "never comes":
            return {"SyncTimeoutError"}
        case "dies":
            return {"SyncTimeoutError", *regular}
    return regular


def run(seeds: Iterable[int], processes: int, log: Any = None) -> dict[int, list[str]]:
    """Run a scenario for each seed on one gang; the problems of those that have any."""
    failed = {}
    with Gang(processes=processes, devices_per_process=2) as gang:
        for seed in seeds:
            scenario = draw(seed, processes)
            per_rank = [(scenario,)] * processes
            outcomes = gang.run(play, per_rank=per_rank, deadline_s=DEADLINE_S, stall_s=STALL_S)
            found = problems(scenario, outcomes)
            if found:
                failed[seed] = found
                if log is not None:
                    log(f"seed {seed} at {processes} processes, {scenario}:")
                    for text in found:
                        log(f"  {text}")
    return failed


def main() -> int:
    """Run a campaign from the command line; the number of scenarios that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--scenarios", type=int, default=100)
    parser.add_argument("--processes", default="2,3,4")
    parser.add_argument("--only", type=int, help="re-run the scenario with this seed")
    arguments = parser.parse_args()
    counts = [int(text) for text in arguments.processes.split(",")]
    print(f"seed {arguments.seed}", flush=True)
    failures = 0
    for index, processes in enumerate(counts):
        if arguments.only is not None:
            seeds = [arguments.only]
        else:
            share = range(index, arguments.scenarios, len(counts))
            seeds = [arguments.seed * 1_000_003 + number for number in share]
        began = time.monotonic()
        failed = run(seeds, processes, lambda text: print(text, flush=True))
        failures += len(failed)
        print(
            f"{processes} processes: {len(seeds)} scenarios, {len(failed)} failed, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
