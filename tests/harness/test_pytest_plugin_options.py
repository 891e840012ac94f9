"""What the pytest plugin takes from options and markers; nothing is started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.pytest_plugin.settings import Settings
from harness.pytest_plugin.topologies import (
    Limits,
    MarkerError,
    Topology,
    arguments_of,
    limits,
    topologies,
)

pytest_plugins = ["pytester"]

SETTINGS = Settings(2, 1, "local", 60.0, None, None, {})


def collect(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Collect with the plugin, in this process."""
    return pytester.runpytest_inprocess("-p", "harness.pytest_plugin", "--collect-only", *args)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTEST_ADDOPTS", "PYTEST_GANG_DEADLINE_S", "PYTEST_GANG_STALL_S"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    """A file with tests of several topologies."""
    pytester.makepyfile(
        test_it="""
        import pytest

        def fast(): ...

        @pytest.mark.gang(processes=[2, 4])
        @pytest.mark.parametrize("rows", [7])
        def test_processes(rows): ...

        @pytest.mark.gang(3, devices=[1, 2], backend=["local", fast])
        def test_all(): ...

        @pytest.mark.gang(devices=2)
        class TestMarked:
            @pytest.mark.gang(processes=5)
            def test_method(self): ...

        def test_fixture(gang): ...

        def test_plain(): ...
        """
    )
    return pytester


def test_an_item_is_made_of_each_topology(tests: pytest.Pytester) -> None:
    """Its id names processes always, devices and backend where they are lists."""
    result = collect(tests, "-q")

    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == [
        "test_processes[processes=2-7]",
        "test_processes[processes=4-7]",
        "test_all[processes=3-devices=1-backend=local]",
        "test_all[processes=3-devices=1-backend=fast]",
        "test_all[processes=3-devices=2-backend=local]",
        "test_all[processes=3-devices=2-backend=fast]",
        "TestMarked::test_method[processes=5]",
        "test_fixture[processes=2]",
        "test_plain",
    ]


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("devices_2 and backend_fast", 1),
        ("test_processes and not processes_4", 1),
    ],
)
def test_topologies_can_be_chosen_by_k(tests: pytest.Pytester, expression: str, count: int) -> None:
    """`-k` takes no `=`, so it knows them by other names."""
    result = collect(tests, "-q", "-k", expression)

    assert sum("::" in line for line in result.outlines) == count


def test_the_header_has_the_values_in_effect(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line wins over environment, environment over ini; each says whence it is."""
    pytester.makeini("[pytest]\ngang_deadline_s = 1\ngang_stall_s = 2\ngang_processes = 3")
    monkeypatch.setenv("PYTEST_GANG_DEADLINE_S", "10")
    monkeypatch.setenv("PYTEST_GANG_STALL_S", "20")
    result = collect(pytester, "--gang-deadline-s=100")

    result.stdout.fnmatch_lines(
        [
            "*, deadline_s=100.0 (--gang-deadline-s), stall_s=20.0 (PYTEST_GANG_STALL_S), *",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "gang: processes=3 (gang_processes of the ini file), devices=1, backend=local, *",
        ]
    )


def test_options_are_the_defaults_of_markers(tests: pytest.Pytester) -> None:
    """A marker wins over the command line."""
    result = collect(tests, "-q", "--gang-processes=6", "-k", "test_processes or test_fixture")

    result.stdout.fnmatch_lines(
        ["*[[]processes=2-7]", "*[[]processes=4-7]", "*::test_fixture[[]processes=6]"]
    )


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--gang-max-processes", "many", "a whole number of 1 or more"),
        ("--gang-stall-s", "nan", "seconds, more than 0"),
    ],
)
def test_a_wrong_option_is_refused(
    pytester: pytest.Pytester, option: str, value: str, rule: str
) -> None:
    """Before anything starts, with the rule and the value."""
    result = collect(pytester, f"{option}={value}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option} must be {rule}, not '{value}'"])


def test_a_wrong_marker_fails_the_collection(pytester: pytest.Pytester) -> None:
    """With the name of the test and of the argument."""
    pytester.makepyfile("import pytest\n@pytest.mark.gang(processes=[2, 0])\ndef test_it(): pass")
    result = collect(pytester)

    result.stdout.fnmatch_lines(
        ["*::test_it: gang: processes must be a whole number of 1 or more, * not [[]2, 0]"]
    )
    result.assert_outcomes(errors=1)


def mark(*args: Any, **kwargs: Any) -> pytest.Mark:
    """A marker that is on no test."""
    return pytest.Mark("gang", args, kwargs, _ispytest=True)


def read(*marks: pytest.Mark) -> tuple[dict[str, Topology], Limits]:
    """What a test with these markers asks for, the nearest to it first."""
    given = arguments_of(marks)
    return topologies(given, SETTINGS), limits(given, SETTINGS)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (mark(proceses=2), "'proceses'; it takes processes, devices, backend, deadl"),
        (mark(2, processes=2), "multiple values for argument 'processes'"),
        (mark(processes=True), "whole number of 1 or more, or a list of them, not Tru"),
        (mark(processes=[]), "whole number of 1 or more, or a list of them, not []"),
        (mark(processes=[2, 2]), "processes=2 is asked for twice"),
        (mark(devices=1.5), "devices must be a whole number of 1 or more"),
        (mark(backend=7), "backend must be a name"),
        (mark(backend="nope"), "backend must be one of local, ray, jaxtrainer"),
        (mark(env={"A": 1}), "env must map names to text"),
        (mark(env="A=1"), "env must be a dict, not 'A=1'"),
        (mark(jax_config={"a": []}), "jax_config must have values that can be hashed"),
        (mark(deadline_s=0), "deadline_s must be seconds, more than 0, not 0"),
        (mark(stall_s="5"), "stall_s must be seconds, more than 0, not '5'"),
    ],
)
def test_a_wrong_argument_is_named(one: pytest.Mark, message: str) -> None:
    """With the rule and the value."""
    with pytest.raises(MarkerError) as error:
        read(one)

    assert message in str(error.value)


def test_more_processes_than_the_limit_are_refused() -> None:
    """A limit that somebody has set is an error at collection, with both numbers."""
    with pytest.raises(MarkerError, match="processes=9 is more than gang_max_processes=8 allows"):
        topologies({"processes": [2, 9]}, replace(SETTINGS, max_processes=8))


def test_this_without_the_marker_is_refused(pytester: pytest.Pytester) -> None:
    """The fixture of ranks in a test that runs on none says what is missing."""
    pytester.makepyfile("def test_it(this): pass")
    result = pytester.runpytest_inprocess("-p", "harness.pytest_plugin")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the test needs the marker gang*"])


def test_the_nearest_marker_wins() -> None:
    """Argument by argument."""
    found, times = read(mark(4, stall_s=2), mark(2, devices=3, stall_s=1))

    assert found == {"processes=4": Topology(4, 3, "local")}
    assert times == Limits(60.0, 2)


def test_each_setting_holds_where_no_marker_says_otherwise() -> None:
    """And each argument of a marker wins over the setting of its name."""
    settings = Settings(3, 4, "ray", 7.0, 2.0, None, {})
    given = arguments_of([mark(5, 6, "local", deadline_s=8, stall_s=1)])

    assert topologies({}, settings) == {"processes=3": Topology(3, 4, "ray")}
    assert limits({}, settings) == Limits(7.0, 2.0)
    assert topologies(given, settings) == {"processes=5": Topology(5, 6, "local")}
    assert limits(given, settings) == Limits(8, 1)


def test_environment_and_jax_options_are_part_of_a_topology() -> None:
    """So that tests which need different ones do not share a gang."""
    found, _ = read(mark(env={"A": "1"}, jax_config={"jax_enable_x64": True}))

    assert found["processes=2"] == Topology(
        2, 1, "local", (("A", "1"),), (("jax_enable_x64", True),)
    )
