"""How far a run is, in one line."""

from __future__ import annotations

import io

from ci.costs import Costs, kind_of
from ci.known import Known
from ci.progress import Progress, key_of
from ci.suite import Followed
from conformance.plan import gang_of
from tests.ci.samples import planned, result


def test_a_line_says_case_count_and_time_left() -> None:
    """It names the case that runs, how many are left, and for about how long."""
    cases = [planned(name) for name in ("a", "b", "c")]
    costs = Costs({p.key: kind_of(p, Known()) for p in cases})
    done, now = result("fail", case="a"), result("pass", case="b")
    seen = Followed(results=[done], accounts={done.nodeid: {"duration_s": 30.2}})
    seen.running[now.nodeid] = 100.0
    progress = Progress(cases, costs, 1, io.StringIO())
    progress.tell(seen)
    line = progress.line(seen, 104.0)

    # (30.2 + 3 x 0.2) / 4 seconds a case, for two.
    assert line.startswith("1 of 3 cases, ")
    assert "about 0:15 left, 1 failures so far, known ones too | b-p2d1-memory (4 s)" in line


def test_a_key_is_told_from_the_name_of_a_test() -> None:
    """The name under which a case was planned can be found from that of its test."""
    assert key_of(result("pass").nodeid) == planned().key


def test_a_gang_is_told_from_the_name_of_a_test() -> None:
    """In memory each topology has a gang; on Ray all cases share one cluster."""
    memory = "conformance/test_count.py::test_count[skew-2-p2d1-memory]"
    ray = "conformance/test_count.py::test_count[skew-2-p2d1-ray]"

    assert gang_of(memory) == "p2d1"
    assert gang_of(ray) == gang_of(ray.replace("p2d1", "p3d2")) == "ray"
