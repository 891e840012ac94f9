"""What one measurement is: a work, a topology, a step, an epoch."""

from dataclasses import dataclass
from typing import Literal

Source = Literal["memory", "frozen", "ray"]


@dataclass(frozen=True)
class Cell:
    """One measurement, in which all contestants take turns.

    Attributes:
        work: Name of the work.
        source: Where rows come from: `memory`, arrays that anybody may write to; `frozen`, arrays
            over aligned memory that nobody can write to, as Ray hands them out; `ray`, a dataset.
        processes: Number of processes.
        devices: CPU devices of each.
        step_ms: Milliseconds that a step waits before its global reduction; 0: no step at all.
        batches: Full batches of each process in an epoch.
        uneven: Process p has p rows more than whole batches, and the last one a batch less.
        launches: The step is the reduction alone, launched for each batch and not waited for.
    """

    work: str
    source: Source
    processes: int
    devices: int
    step_ms: float
    batches: int
    uneven: bool = False
    launches: bool = False

    @property
    def has_step(self) -> bool:
        """Whether something is computed from each batch."""
        return self.launches or self.step_ms > 0

    def rows_of(self, process: int, batch_size: int) -> int:
        """Return how many rows a process has."""
        rows = self.batches * batch_size
        if not self.uneven:
            return rows
        if process == self.processes - 1:
            rows -= batch_size
        return rows + process % batch_size

    @property
    def delivered(self) -> int:
        """Full batches that all processes have: what each contestant must deliver."""
        return self.batches - self.uneven

    def __str__(self) -> str:
        """Return the cell in a few words."""
        step = f"step {self.step_ms:g} ms" if self.step_ms else "no step"
        if self.launches:
            step = "a step that is launched and not waited for"
        uneven = ", uneven" if self.uneven else ""
        return (
            f"{self.work} from {self.source}, {self.processes} x {self.devices}, {step}, "
            f"{self.batches} batches{uneven}"
        )
