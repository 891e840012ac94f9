"""Which mutant which clause kills: ``python -m conformance.kill_matrix --help``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.clauses import clauses
from conformance.model import Topology
from conformance.mutants.arena import Arena, Fate, one_a_clause, trials
from conformance.mutants.model import Mutant
from conformance.mutants.tables import NAMED, SEED, sample
from conformance.report import write

EQUIVALENT = Path(__file__).parent / "mutants" / "survivors.toml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutants; 0 if each is killed as it should be, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m conformance.kill_matrix", description=__doc__)
    parser.add_argument("mutants", nargs="*", help="names; all where none is given")
    parser.add_argument("--written", action="store_true", help="only those that name a clause")
    parser.add_argument("--sampled", action="store_true", help="only mechanical edits")
    parser.add_argument("--whole", action="store_true", help="do not stop at the first kill")
    parser.add_argument("--devices", type=int, help="of each process (default: what it needs)")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="of the sample (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="print names, run nothing")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the fates as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table of them")
    given = parser.parse_args(arguments)
    chosen = _chosen(given)
    if given.list:
        print(*(m.name for m in chosen), sep="\n")
        return 0
    fates = []
    with Arena() as arena:
        for mutant in sorted(chosen, key=lambda m: (m.kind, m.devices)):
            fates.append(run(arena, mutant, whole=given.whole, devices=given.devices))
            print(_line(mutant, fates[-1]), flush=True)
            if given.report:
                write(json.dumps([asdict(f) for f in fates], indent=1), given.report)
    show(fates)
    if given.markdown:
        write(as_markdown(fates), given.markdown)
    return 1 if wrong(fates) else 0


def _chosen(given: argparse.Namespace) -> list[Mutant]:
    everything = {**NAMED, **{m.name: m for m in sample(given.seed)}}
    if given.mutants:
        from conformance.mutants.tables import find

        return [everything.get(name) or find(name) for name in given.mutants]
    written = given.written or not given.sampled
    sampled = given.sampled or not given.written
    return [m for m in everything.values() if (written if m.clause else sampled)]


def run(arena: Arena, mutant: Mutant, *, whole: bool = False, devices: int | None = None) -> Fate:
    """Run a mutant on the cases of its clause, then, for the ``whole`` row, on those of others.

    One that names no clause runs on every case in memory until one does not pass.
    """
    topology = Topology(2, devices or mutant.devices)
    if not mutant.clause:
        cheap = list(one_a_clause(every := trials(topology)))
        rest = [t for t in every if t not in cheap]
        return arena.fate(mutant, cheap + rest, first=not whole)
    own = trials(topology, mutant.kind, mutant.clause)
    fate = arena.fate(mutant, own, clause=mutant.clause)
    hung = any(v[0] in ("hang", "undecided") for v in fate.killed.values())
    if whole and not hung:
        others = arena.fate(mutant, one_a_clause(trials(topology)), first=False)
        fate.killed |= {c: v for c, v in others.killed.items() if c not in fate.killed}
        fate.passed = sorted({*fate.passed, *others.passed} - fate.killed.keys())
        fate.cases += others.cases
    return fate


def _line(mutant: Mutant, fate: Fate) -> str:
    if not fate.killed:
        return f"SURVIVES  {mutant.name}  ({fate.cases} cases)"
    clause = mutant.clause if mutant.clause in fate.killed else next(iter(fate.killed))
    kind, case, words = fate.killed[clause]
    more = len(fate.killed) - 1
    also = f", and {more} clauses more" if more else ""
    return f"{kind:9} {mutant.name}  by {clause}{also} ({case}): {words.splitlines()[0][:100]}"


def survivors() -> dict[str, str]:
    """The sampled mutants that no case can tell from right code, or need not, each with why."""
    import tomllib

    found: dict[str, str] = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return found


def wrong(fates: Sequence[Fate]) -> list[str]:
    """What is not as it should be, in words."""
    known = survivors()
    found = []
    for fate in fates:
        clause = NAMED[fate.mutant].clause if fate.mutant in NAMED else ""
        if clause and clause not in fate.killed:
            found.append(f"{fate.mutant}: {clause}, which it names, passes it")
        if not clause and not fate.killed and fate.mutant not in known:
            found.append(f"{fate.mutant}: survives, and survivors.toml does not say why")
        if fate.killed and fate.mutant in known:
            by = next(iter(fate.killed))
            found.append(f"{fate.mutant}: {by} kills it, but survivors.toml says that none can")
    return found


def show(fates: Sequence[Fate]) -> None:
    """Print the matrix, a row a clause, and all that is wrong."""
    console = Console(file=sys.stdout, width=140, highlight=False, markup=False, emoji=False)
    table = Table(title=f"kill matrix: {len(fates)} mutants", title_justify="left", expand=True)
    for name in ("clause", "named by", "kills in all", "kills alone"):
        table.add_column(name)
    for clause in clauses():
        named = [f.mutant for f in fates if f.mutant in NAMED and NAMED[f.mutant].clause == clause]
        killed = [f for f in fates if clause in f.killed]
        alone = [f for f in killed if len(f.killed) == 1]
        if killed or named:
            marks = ", ".join(
                n if any(n == f.mutant for f in killed) else f"{n} NOT" for n in named
            )
            table.add_row(clause, marks, str(len(killed)), str(len(alone)))
    console.print(table)
    for words in wrong(fates):
        console.print(words)
    dead = sum(bool(f.killed) for f in fates)
    console.print(
        f"{dead} of {len(fates)} mutants killed, {len(wrong(fates))} not as they should be"
    )


def as_markdown(fates: Sequence[Fate]) -> str:
    """A row a mutant: its name, what it copies, what kills it and how."""
    reasons = survivors()
    lines = ["| mutant | copies | killed by | verdict, case |", "| --- | --- | --- | --- |"]
    for fate in fates:
        own = NAMED[fate.mutant].clause if fate.mutant in NAMED else ""
        first = own if own in fate.killed else next(iter(fate.killed), "")
        how = "survives: " + reasons.get(fate.mutant, "no reason given")
        if first:
            kind, case, _ = fate.killed[first]
            how = f"{kind}, `{case}`"
        copies = fate.origin or ("" if own else "mechanical")
        lines.append(f"| `{fate.mutant}` | {copies} | {', '.join(fate.killed)} | {how} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
