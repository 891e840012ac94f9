"""What processes say to each other, and how it is written: short JSON texts.

A report goes from one process to process 0. It says how things stand, but of schemas and checksums
only what earlier ones have not said. A decision goes from process 0 to all. One of either kind that
says nothing new is a sign of life.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxiter.agreement import Changes, Final, Standing
from jaxiter.errors import Note

PROTOCOL = 1  # processes of different versions refuse each other in the hello


@dataclass(frozen=True)
class Hello:
    """What a process says before it touches its source.

    Attributes:
        agreed: What must be the same on all processes, as JSON values.
        row_set: Which set of rows its devices hold.
        look_ahead: How many batches it wants decided ahead of its consumer.
    """

    agreed: Mapping[str, Any]
    row_set: int
    look_ahead: int


@dataclass(frozen=True)
class Report:
    """What a process says of itself.

    Attributes:
        standing: How its epoch stands.
        hello: In its first report; None if it failed before it had one.
        seen: Decisions that it has read.
        waited_s: How long its consumer has been waiting for a decision; 0 if it is not.
        full: It reads no further because its consumer has not taken what is decided.
    """

    standing: Standing
    hello: Hello | None = None
    seen: int = 0
    waited_s: float = 0.0
    full: bool = False

    def then(self, later: "Report") -> "Report":
        """Return what this one and the next say together."""
        standing = later.standing
        schemas = self.standing.schemas + standing.schemas
        sums = self.standing.sums + standing.sums
        standing = replace(standing, schemas=schemas, sums=sums)
        return replace(later, standing=standing, hello=self.hello or later.hello)

    def text(self) -> str:
        """Return the report as written."""
        value: dict[str, Any] = {
            name: content
            for name, content in vars(self.standing).items()
            if content and name != "error"
        }
        if self.standing.error is not None:
            value["error"] = self.standing.error.to_json()
        if self.hello is not None:
            value["hello"] = vars(self.hello)
        if self.seen:
            value["seen"] = self.seen
        if self.waited_s:
            value["waited_s"] = round(self.waited_s, 3)
        if self.full:
            value["full"] = True
        return json.dumps(value, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> "Report":
        """Return the report that was written as `text`."""
        value = json.loads(text)
        hello = value.pop("hello", None)
        error = value.pop("error", None)
        rest = {name: value.pop(name) for name in ("seen", "waited_s", "full") if name in value}
        for name in ("schemas", "sums"):
            value[name] = _changes(value.get(name, ()))
        standing = Standing(error=None if error is None else Note.from_json(error), **value)
        return Report(standing, None if hello is None else Hello(**hello), **rest)


@dataclass(frozen=True)
class Go:
    """All processes have said hello and agree.

    Attributes:
        look_ahead: Batches that may be decided ahead of a consumer from the start: the largest
            that any process wants.
        patience_s: How long process 0 waits for a process.
    """

    look_ahead: int
    patience_s: float


@dataclass(frozen=True)
class Decision:
    """What process 0 says to all.

    Attributes:
        upto: Batches at positions below this are delivered.
        go: Once, when all have said hello.
        final: Whether it all stops at `upto`, and how.
        schemas: Schemas for processes that pad.
        slow: For the log: who is waited for.
    """

    upto: int
    go: Go | None = None
    final: Final | None = None
    schemas: Changes = ()
    slow: str = ""

    def then(self, later: "Decision") -> "Decision":
        """Return what this one and the next say together."""
        return Decision(
            later.upto,
            self.go or later.go,
            later.final,
            self.schemas + later.schemas,
            "; ".join(filter(None, (self.slow, later.slow))),
        )

    def text(self) -> str:
        """Return the decision as written."""
        value: dict[str, Any] = {"upto": self.upto}
        if self.go is not None:
            value["go"] = vars(self.go)
        if self.final is not None:
            final = {name: content for name, content in vars(self.final).items() if content}
            if self.final.error is not None:
                final["error"] = self.final.error.to_json()
            value["final"] = final
        if self.schemas:
            value["schemas"] = self.schemas
        if self.slow:
            value["slow"] = self.slow
        return json.dumps(value, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> "Decision":
        """Return the decision that was written as `text`."""
        value = json.loads(text)
        go = value.get("go")
        final = value.get("final")
        return Decision(
            value["upto"],
            None if go is None else Go(**go),
            None if final is None else _final(final),
            _changes(value.get("schemas", ())),
            value.get("slow", ""),
        )


def _final(value: dict[str, Any]) -> Final:
    error = value.get("error")
    left = value.get("left")
    return Final(
        None if error is None else Note.from_json(error),
        None if left is None else (left[0], left[1]),
        value.get("dropped", 0),
    )


def _changes(value: Any) -> Changes:
    return tuple((position, content) for position, content in value)
