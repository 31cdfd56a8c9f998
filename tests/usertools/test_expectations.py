"""Golden output: only the expected texts change, and only where a run can be an example."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.expectations import CaseResult, GoldenUpdate, golden_manifest, update_golden
from golem_forge.usertools.folder import FileFact, ToolEntry
from golem_forge.usertools.manifest.tool_yaml import read_manifest

HEAD = "name: x   # the name\ndescription: 'A tool.'\nversion: \"1.10\"\nentrypoint: x.sh\n"


def printed(*texts: str | None) -> tuple[CaseResult, ...]:
    """None: a case that timed out."""
    return tuple(
        CaseResult(name=f"test {index + 1}", ok=False, duration_ms=1, problems=("timed out after 10 seconds",))
        if text is None
        else CaseResult(
            name=f"test {index + 1}", ok=False, duration_ms=1, problems=("stdout",), stdout=text, as_expected=True
        )
        for index, text in enumerate(texts)
    )


def updated(cases: str, *texts: str | None) -> GoldenUpdate:
    data = (HEAD + cases).encode()
    return golden_manifest(data, read_manifest(data, folder="x"), printed(*texts))


def cases_of(made: GoldenUpdate) -> str:
    text = made.data.decode()
    assert text.startswith(HEAD)
    return text.removeprefix(HEAD)


EVERY_WAY = """
tests:   # of all kinds
  - name: plain
    arguments: {}
    expect: {exit_code: 0, stdout: old}   # kept
  - arguments: {}
    expect:
      stdout: "old\\n"   # kept, too
      stderr_contains: [x]

  # between
  - arguments: {}
    expect:
      stdout: |   # header
        old
        lines

      exit_code: 0
  - {arguments: {}}
  - {arguments: {},}
  - arguments: {}   # without anything
  # after it
  - arguments: {}
    expect: {}
  - arguments:
      {}
    expect: {stdout_contains: [left, alone]}
category: Odd   # the end
"""
EVERY_WAY_AFTERWARDS = """
tests:   # of all kinds
  - name: plain
    arguments: {}
    expect: {exit_code: 0, stdout: "one\\n"}   # kept
  - arguments: {}
    expect:
      stdout: "two\\nlines\\n"   # kept, too
      stderr_contains: [x]

  # between
  - arguments: {}
    expect:
      stdout: |   # header
        three
          indented

        end

      exit_code: 0
  - {arguments: {}, expect: {stdout: "four\\n"}}
  - {arguments: {},expect: {stdout: "five"}}
  - arguments: {}   # without anything
    expect:
      stdout: |
        six
        lines
  # after it
  - arguments: {}
    expect: {stdout: "007"}
  - arguments:
      {}
    expect: {stdout_contains: [left, alone]}
category: Odd   # the end
"""


def test_every_way_to_write_it_down_and_nothing_else_changes() -> None:
    made = updated(
        EVERY_WAY,
        "one\n",
        "two\nlines\n",
        "three\n  indented\n\nend\n",
        "four\n",
        "five",
        "six\nlines\n",
        "007",
        "eight",
    )
    assert cases_of(made) == EVERY_WAY_AFTERWARDS
    assert made.updated == tuple(f"test {number}" for number in range(1, 8))
    assert made.refused == ()


def test_what_is_as_expected_already_is_not_touched() -> None:
    cases = "tests:\n  - {arguments: {}, expect: {stdout: 'same'}}\n"
    made = updated(cases, "same")
    assert cases_of(made) == cases
    assert made.updated == ()


def test_cases_that_did_not_end_as_expected_are_refused() -> None:
    cases = "tests:\n  - {arguments: {}, expect: {stdout: 'a'}}\n  - {arguments: {}, expect: {stdout: 'b'}}\n"
    made = updated(cases, None, "new")
    assert made.refused == ("test 1: not updated: timed out after 10 seconds",)
    assert made.updated == ("test 2",)
    assert cases_of(made) == cases.replace("'b'", '"new"')


def test_output_that_is_no_text_is_refused() -> None:
    data = (HEAD + "tests: [{arguments: {}, expect: {stdout: a}}]\n").encode()
    result = CaseResult(name="test 1", ok=False, duration_ms=1, problems=("stdout",), stdout=None, as_expected=True)
    made = golden_manifest(data, read_manifest(data, folder="x"), (result,))
    assert made.data == data
    assert made.refused == ("test 1: not updated: what it printed is not UTF-8 text",)


def test_a_manifest_that_would_become_too_large_is_refused() -> None:
    with pytest.raises(ForgeError, match="cannot be kept"):
        updated("tests: [{arguments: {}, expect: {stdout: a}}]\n", "x" * 70_000)


ENDS = ("", "\n", "\n\n# the end\n", "\r\n")
TEXTS = ("", "\n", "one\n", "one\ntwo", "one\ntwo\n", " one\n two\n", "a\n\n\n", "# a\n- b\n")


@table(
    "case",
    [
        "tests:\n- arguments: {}",
        "tests:\n  - arguments:\n      {}",
        "tests:\n  - arguments: {}\n    files:\n      a.txt: |\n        # no comment\n",
        "tests:\n  - arguments: {}\n    expect:\n      stdout: >-\n        folded\n        text\n",
        "tests:\n  - arguments: {}\n    expect: {stdout: two\n      lines}",
        "tests:\n  - arguments: {}\n    expect:\n      stdout: 'it''s\n\n        quoted'",
        'tests: [{"arguments": {}, "expect": {"stdout": ""}}]',
    ],
)
def test_however_it_is_written_it_reads_back(case: str) -> None:
    for text, end in zip(TEXTS, ENDS * 2, strict=True):
        data = (HEAD + case + end).encode()
        manifest = read_manifest(data, folder="x")
        made = golden_manifest(data, manifest, printed(text))
        again = read_manifest(made.data, folder="x")
        assert again.tests[0].expect.stdout == text
        assert again.tests[0].files == manifest.tests[0].files
        assert golden_manifest(made.data, again, printed(text)).updated == (), text


_ANY = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
_LINES = st.lists(st.text(st.sampled_from("ab:#-'\" \t\\{}[]|>\n\r"), max_size=12), max_size=6).map("\n".join)
_WAYS = ("{stdout: old}", "\n      stdout: old", "\n      stdout: |\n        old\n", "{}")


@given(text=_ANY | _LINES, way=st.sampled_from(_WAYS))
@example(text="\x00\x1b[2J\u2028\ufeff\x85", way=_WAYS[0])
@example(text="---\n...\n%YAML\n", way=_WAYS[2])
def test_any_text_reads_back(text: str, way: str) -> None:
    data = (HEAD + f"tests:\n  - arguments: {{}}\n    expect: {way}\n").encode()
    made = golden_manifest(data, read_manifest(data, folder="x"), printed(text))
    assert read_manifest(made.data, folder="x").tests[0].expect.stdout == text


def entry_in(home: ForgeHome, data: bytes) -> ToolEntry:
    import hashlib

    folder = home.ensure("tools", "x")
    (folder / "tool.yaml").write_bytes(data)
    (folder / "tool.yaml").chmod(0o600)
    fact = FileFact("tool.yaml", False, len(data), hashlib.sha256(data).hexdigest())
    return ToolEntry(
        name="x", folder=folder, manifest=read_manifest(data, folder="x"), digest="sha256:0", files=(fact,)
    )


DATA = (HEAD + "tests: [{arguments: {}, expect: {stdout: a}}]\n").encode()


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    home = ForgeHome(tmp_path / "home")
    entry = entry_in(home, DATA)
    made = update_golden(home, entry, printed("b"))
    file = entry.folder / "tool.yaml"
    assert made.updated == ("test 1",)
    assert file.read_bytes() == made.data == DATA.replace(b"stdout: a", b'stdout: "b"')
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(home.path / "tools") == ["x"]
    assert os.listdir(entry.folder) == ["tool.yaml"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    home = ForgeHome(tmp_path / "home")
    entry = entry_in(home, DATA)
    edited = DATA.replace(b"A tool.", b"Edited.")
    (entry.folder / "tool.yaml").write_bytes(edited)
    with pytest.raises(ForgeError, match="changed while its tests ran"):
        update_golden(home, entry, printed("b"))
    assert (entry.folder / "tool.yaml").read_bytes() == edited


def _file_link(folder: Path, elsewhere: Path) -> None:
    (elsewhere / "tool.yaml").write_bytes(DATA)
    (folder / "tool.yaml").unlink()
    (folder / "tool.yaml").symlink_to(elsewhere / "tool.yaml")


def _folder_link(folder: Path, elsewhere: Path) -> None:
    (elsewhere / "tool.yaml").write_bytes(DATA)
    (folder / "tool.yaml").unlink()
    folder.rmdir()
    folder.symlink_to(elsewhere)


@pytest.mark.parametrize("swap", [_file_link, _folder_link])
def test_links_are_not_followed(tmp_path: Path, swap: Callable[[Path, Path], None]) -> None:
    home = ForgeHome(tmp_path / "home")
    entry = entry_in(home, DATA)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    swap(entry.folder, elsewhere)
    with pytest.raises(ForgeError, match="could not be updated"):
        update_golden(home, entry, printed("b"))
    assert (elsewhere / "tool.yaml").read_bytes() == DATA
