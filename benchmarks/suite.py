"""How many cases of the suite run warm in a second: `python -m benchmarks.suite --help`.

Cases that wait on purpose (a peer that is slow, late or gone), and those after which a gang starts
anew, are left out: their time is not the suite's own.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from conformance.gangs import Gangs
from conformance.judge import judge
from conformance.model import Case, Topology
from conformance.plan import Planned, plan_all
from conformance.subjects import Subject, find


def main(arguments: Sequence[str] | None = None) -> int:
    """Print cases a second for each subject; 1 if a case does not pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--subjects", default="reference,jaxiter", help="separated by commas")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1, help="CPU devices of each process")
    parser.add_argument("--rounds", type=int, default=2, help="measured, after one that is not")
    options = parser.parse_args(arguments)
    topology = Topology(options.processes, options.devices)
    failed = False
    for name in options.subjects.split(","):
        subject = find(name)
        level = "core" if name == "reference" else "all"
        planned = [
            one
            for one in plan_all(subject, [topology], ["memory"], level)
            if not (_waits(one.case) or one.case.spoils or subject.lacks(one.case))
        ]
        failed = _measure(subject, planned, options.rounds) or failed
    return int(failed)


def _waits(case: Case) -> bool:
    """Whether time is part of what the case is about."""
    slow = any(shard.delay_s for shard in case.shards) or bool(case.use.slow_step_s)
    return slow or case.patience_s > 0


def _measure(subject: Subject, planned: Sequence[Planned], rounds: int) -> bool:
    """Run all cases in each round on one gang; print what they took; whether some did not pass."""
    bad: set[str] = set()
    least = {one.id: float("inf") for one in planned}
    gangs = Gangs(subject)
    try:
        for turn in range(rounds + 1):
            began = time.perf_counter()
            for one in planned:
                case_began = time.perf_counter()
                outcomes = gangs.run(one.case, one.topology, one.kind)
                verdicts = judge(one.case, one.topology, outcomes)
                if any(verdict.kind != "pass" for verdict in verdicts.values()):
                    bad.add(one.id)
                least[one.id] = min(least[one.id], time.perf_counter() - case_began)
            spent_s = time.perf_counter() - began
            print(
                f"{subject.name}, {'warm' if turn else 'first round'}: {len(planned)} cases in "
                f"{spent_s:.2f} s, {len(planned) / spent_s:.0f} a second",
                flush=True,
            )
    finally:
        gangs.close()
    half_ms = 1000 * statistics.median(least.values())
    longest = sorted(least, key=lambda name: -least[name])[:5]
    print(f"  half of the cases take {half_ms:.1f} ms or less, {1000 / half_ms:.0f} a second")
    print("  longest: " + ", ".join(f"{name} {1000 * least[name]:.0f} ms" for name in longest))
    print("".join(f"  {name} does not pass\n" for name in sorted(bad)), end="")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
