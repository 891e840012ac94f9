"""Files of known results: what they may hold, which is taken, and what their errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.known import DIRECTORY, KnownError, known_of, read
from conformance.model import Topology
from conformance.plan import plan_all
from conformance.subjects import NAMED
from tests.ci.samples import LINK, entry

HEAD = 'subject = "thing"\nversions = ">=2.56,<2.61"\n'
ENTRY = f"""
[[known]]
clause = "COUNT-3"
outcome = "hang"
reason = "it waits"
link = "{LINK}"
"""
VERSIONS = {"ray": "2.60.0", "jax": "0.10.2"}


def _write(folder: Path, text: str, name: str = "thing-2.56.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + ENTRY.replace("hang", "slow"), "entry 1 (COUNT-3): field 'outcome'"),
        (HEAD + ENTRY.replace("hang", "fails"), "'outcome': give one of fail, hang"),
        (HEAD + ENTRY.replace("hang", "pass"), "entry 1 (COUNT-3): field 'outcome'"),
        (HEAD + ENTRY + ENTRY.replace("COUNT-3", "COUNT-99"), "entry 2 (COUNT-99): field 'clause'"),
        (HEAD + ENTRY.replace("https", "ftp"), "field 'link'"),
        (HEAD + ENTRY + 'processes = "two"\n', "field 'processes'"),
        (HEAD + ENTRY + "color = 1\n", "field 'color'"),
        (HEAD + ENTRY + "cases = []\n", "field 'cases'"),
        (HEAD + ENTRY.replace('reason = "it waits"\n', ""), "field 'reason': Field required"),
        (HEAD.replace(">=2.56", "from 2.56") + ENTRY, "field 'versions'"),
        ('subject = "thing"\n', "field 'versions'"),
        ("known = 3\n" + HEAD, "field 'known'"),
        ("subject = ", "cannot be read"),
    ],
)
def test_an_error_names_file_entry_and_field(tmp_path: Path, text: str, words: str) -> None:
    """Whatever is wrong with a file, its error says where."""
    path = _write(tmp_path, text)

    with pytest.raises(KnownError, match=r"thing-2\.56\.toml") as raised:
        read(path)

    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("version", "count", "words"),
    [
        ("2.56.0", 1, "known results of thing-2.56.toml"),
        ("2.60.3", 1, "known results of thing-2.56.toml"),
        ("2.61.0.dev0", 1, "compared with thing-2.56.toml, the nearest before it"),
        ("2.62", 1, "compared with thing-2.56.toml, the nearest before it"),
        ("2.55.1", 0, "no file of known results speaks of thing 2.55.1"),
        ("", 0, "no file of known results"),
    ],
)
def test_the_file_that_speaks_of_the_version_is_taken(
    tmp_path: Path, version: str, count: int, words: str
) -> None:
    """Within its range a file holds; beyond it the nearest before does, and it is said."""
    _write(tmp_path, HEAD + ENTRY)

    known = known_of("thing", version, VERSIONS, tmp_path)

    assert len(known.entries) == count
    assert words in known.note


def test_two_files_for_one_version_are_an_error(tmp_path: Path) -> None:
    """Which of two files holds is not to be guessed."""
    _write(tmp_path, HEAD + ENTRY)
    _write(tmp_path, HEAD + ENTRY, "thing-2.57.toml")

    with pytest.raises(KnownError, match="each speaks of thing"):
        known_of("thing", "2.58", VERSIONS, tmp_path)


def test_a_file_must_be_named_after_its_subject(tmp_path: Path) -> None:
    """A file is found by its name, so a wrong name is an error, not a file that is passed over."""
    _write(tmp_path, HEAD + ENTRY, "other-2.56.toml")

    with pytest.raises(KnownError, match="wants the name thing-"):
        known_of("thing", "2.58", VERSIONS, tmp_path)


def test_a_subject_without_files_has_nothing_known(tmp_path: Path) -> None:
    """Of a new subject every clause is expected to pass."""
    assert known_of("my:own", "", VERSIONS, tmp_path).entries == ()


@pytest.mark.parametrize(
    ("fields", "topology", "kind", "found"),
    [
        ({}, Topology(2, 1), "memory", True),
        ({"processes": ">=3"}, Topology(2, 1), "memory", False),
        ({"processes": ">=3"}, Topology(4, 1), "memory", True),
        ({"devices": "==2"}, Topology(2, 1), "memory", False),
        ({"sources": "ray"}, Topology(2, 1), "memory", False),
        ({"sources": "ray"}, Topology(2, 1), "ray", True),
    ],
)
def test_a_condition_says_where_an_entry_holds(
    fields: dict[str, str], topology: Topology, kind: str, found: bool
) -> None:
    """Processes, devices and the kind of source can each narrow an entry."""
    assert entry(**fields).is_in(topology, kind) is found  # type: ignore[arg-type]


def test_releases_narrow_an_entry(tmp_path: Path) -> None:
    """An entry for some releases of Ray or JAX is left out with others."""
    _write(tmp_path, HEAD + ENTRY + 'ray = ">=2.58"\njax = "<0.9"\n')

    assert known_of("thing", "2.60", {"ray": "2.60.0", "jax": "0.10.2"}, tmp_path).entries == ()
    assert known_of("thing", "2.60", {"ray": "2.57.0", "jax": "0.7.2"}, tmp_path).entries == ()
    assert len(known_of("thing", "2.60", {"ray": "2.60.0", "jax": "0.7.2"}, tmp_path).entries) == 1


def test_patterns_name_cases() -> None:
    """A ``*`` stands for any letters; without one the name is the whole."""
    some = entry(cases=["skew-*-padded", "even"])

    assert some.names("COUNT-3", "skew-2-padded")
    assert some.names("COUNT-3", "even")
    assert not some.names("COUNT-3", "uneven")
    assert not some.names("COUNT-2", "even")


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.toml")), ids=lambda p: p.name)
def test_each_pattern_of_our_files_matches_a_case(path: Path) -> None:
    """No entry and no pattern has outlived its case."""
    file = read(path)
    topologies = [Topology(p, d) for p in (2, 3, 4) for d in (1, 2)]
    cases = plan_all(NAMED[file.subject], topologies, ["memory", "ray"], "all")
    unmatched = [
        f"{e}: {pattern}"
        for e in file.known
        for pattern in e.cases
        if not any(
            e.model_copy(update={"cases": (pattern,)}).names(clause, p.case.name)
            for p in cases
            if e.is_in(p.topology, p.kind)
            for clause in p.case.clauses
        )
    ]

    assert unmatched == []


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.toml")), ids=lambda p: p.name)
def test_no_two_entries_of_our_files_speak_of_one_case(path: Path) -> None:
    """The first entry that matches holds, so a second one would say nothing."""
    file = read(path)
    cases = plan_all(NAMED[file.subject], [Topology(3, 2)], ["memory", "ray"], "all")
    always = [e for e in file.known if not e.ray and not e.jax]
    doubles = [
        f"{clause} {p.case.name}"
        for p in cases
        for clause in p.case.clauses
        if sum(e.names(clause, p.case.name) and e.is_in(p.topology, p.kind) for e in always) > 1
    ]

    assert doubles == []
