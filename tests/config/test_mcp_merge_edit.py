"""`forge mcp add` into a file that people wrote: mcp.md §16. Their lines stay, or nothing is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from golem_forge.config import mcp_merge, yaml_edit
from golem_forge.config.mcp_merge import add_server, remove_server
from golem_forge.config.program import load_program
from golem_forge.config.yaml_file import parse_yaml, read_yaml
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome

DOCS = {"url": "https://docs.test/mcp"}
GIT = {
    "command": "uvx",
    "args": ["git", "--repository", "${zone:workspace}", "yes", "1", ""],
    "zones": {"workspace": "rw"},
}

WRITTEN = """\
# a program
entry: main.worker   # why

sandbox:
    zones:
        workspace:   {path: .,   mode: rw}

mcp:
    servers:
        # the first one
        first:   {command: x, args: [a,  b]}   # tail
        # the second one
        second:
            command: y
            env:
                TEXT: |
                    one
                    two

# the end
model: 'a'
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app" / "forge.yaml"


def servers(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(file, "forge.yaml").value["mcp"]["servers"]
    return found


def test_every_line_of_a_person_stays(file: Path) -> None:
    file.write_text(WRITTEN)
    add_server(file, "git", GIT)
    lines = file.read_text().splitlines()
    new = [
        "        git:",
        "          command: uvx",
        "          args: [git, --repository, '${zone:workspace}', yes, '1', '']",
        "          zones:",
        "            workspace: rw",
    ]
    start = lines.index(new[0])
    assert lines[start : start + len(new)] == new
    assert lines[:start] + lines[start + len(new) :] == WRITTEN.splitlines()
    assert servers(file)["git"] == GIT and list(servers(file)) == ["first", "second", "git"]
    remove_server(file, "git")
    assert file.read_text() == WRITTEN


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ("", []),
        ("# only words\n# two\n", ["# only words", "# two"]),
        ("entry: x", []),
        ("mcp:\n", []),
        ("mcp: {}   # c\n", ["# c"]),
        ("mcp:\n  # c\n  servers:\nentry: x # d\n", ["# c", "# d"]),
        ("mcp: {servers: {a: {command: x}}} # t\nmodel: >-\n  folded\n  text\n", ["# t"]),
        ("{entry: x}", []),
        ("---\nentry: x # c\n...\n", ["# c"]),
        ("\ufeffentry: x\r\n# c\r\nmodel: 'y'\r\n", ["# c"]),
        ("delegation: &d {max_depth: 2}\nbudget: {max_tokens: 0x10}\n", []),
    ],
)
def test_whatever_the_file_looks_like_the_rest_means_the_same(file: Path, text: str, comments: list[str]) -> None:
    file.write_bytes(text.encode())
    before = parse_yaml(text.encode(), "x").value
    add_server(file, "docs", DOCS)
    add_server(file, "git", GIT)
    after = read_yaml(file, "x").value
    assert after["mcp"]["servers"].pop("docs") == DOCS and after["mcp"]["servers"].pop("git") == GIT
    assert after["mcp"]["servers"] == ((before.get("mcp") or {}).get("servers") or {})
    assert {k: v for k, v in after.items() if k != "mcp"} == {k: v for k, v in before.items() if k != "mcp"}
    data = file.read_bytes()
    assert all(comment.encode() in data for comment in comments)
    assert data.count(b"\r\n") == (data.count(b"\n") if "\r\n" in text else 0)
    remove_server(file, "git")
    remove_server(file, "docs")
    assert "docs" not in servers(file)


def test_what_is_written_is_what_the_program_reads(file: Path, tmp_path: Path) -> None:
    add_server(file, "git", GIT)
    program = load_program(file.parent, ForgeHome(tmp_path / "home"), trusted=lambda _: True)
    assert program.mcp.servers["git"].args == tuple(GIT["args"])


@pytest.mark.parametrize(
    ("text", "name", "block", "said"),
    [
        (WRITTEN, "first", DOCS, "forge.yaml:11: server 'first' exists already"),
        (WRITTEN, "a__b", DOCS, "is not a name of a server"),
        (WRITTEN, "new", {"url": "http://evil.test"}, "mcp.servers.new.url: http is only for this machine"),
        (WRITTEN, "new", {"url": "https://h.test", "args": []}, "mcp.servers.new.args: has no effect"),
        (WRITTEN, "new", {}, "mcp.servers.new: needs `command`"),
        (WRITTEN, "new", {"command": "x", "nope": 1}, "unknown key 'nope'"),
        ("mcp: [1]\n", "new", DOCS, "nothing was written"),
        ("mcp: {servers: [1]}\n", "new", DOCS, "nothing was written"),
        ("a: [\n", "new", DOCS, "not valid YAML"),
        ("- a\n", "new", DOCS, "expected a mapping"),
    ],
)
def test_what_cannot_be_added_leaves_the_file_alone(file: Path, text: str, name: str, block: Any, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        add_server(file, name, block)
    assert said in str(caught.value)
    assert file.read_text() == text and [path.name for path in file.parent.iterdir()] == ["forge.yaml"]


def test_removing_what_is_not_there(file: Path) -> None:
    file.write_text(WRITTEN)
    with pytest.raises(ConfigError, match="has no server 'frist'; did you mean 'first'"):
        remove_server(file, "frist")
    assert file.read_text() == WRITTEN


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.yaml"
    target.write_text("entry: x\n")
    file.symlink_to(target)
    with pytest.raises(ConfigError, match="is a link"):
        add_server(file, "docs", DOCS)
    assert target.read_text() == "entry: x\n" and file.is_symlink()


def test_the_mode_stays_and_a_new_file_is_made(file: Path) -> None:
    file.write_text("entry: x\n")
    file.chmod(0o640)
    add_server(file, "docs", DOCS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    new = file.parent / "deep" / "config.yaml"
    add_server(new, "docs", DOCS)
    assert new.read_text() == "mcp:\n  servers:\n    docs:\n      url: https://docs.test/mcp\n"
    assert stat.S_IMODE(new.parent.stat().st_mode) == 0o700


def test_what_somebody_else_wrote_meanwhile_is_not_lost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("entry: x\n")
    edited = yaml_edit.put_entry

    def slowly(*args: Any) -> str:
        text = edited(*args)
        file.write_text("entry: theirs\n")
        return text

    monkeypatch.setattr(mcp_merge, "put_entry", slowly)
    with pytest.raises(ConfigError, match="was changed meanwhile"):
        add_server(file, "docs", DOCS)
    assert file.read_text() == "entry: theirs\n" and os.listdir(file.parent) == ["forge.yaml"]


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(
    st.lists(_TEXT, max_size=4), st.dictionaries(st.from_regex(r"X_[A-Z0-9_]{0,8}", fullmatch=True), _TEXT, max_size=3)
)
@example(args=["\x85", "a\u2028b", "\ufeff", "\x7f", " ", "#", ": ", "- a"], env={"X_": "a\n b\r\n\t"})
@example(args=["?0", "-0", ":0", "?", "a?"], env={"X_": "?0"})
@settings(max_examples=settings.default.max_examples // 2)  # each by two ways
def test_every_text_comes_back_as_it_was(tmp_path_factory: Any, args: list[str], env: dict[str, str]) -> None:
    file = tmp_path_factory.mktemp("edit") / "forge.yaml"
    block = {"command": "x", "args": args, "env": env}
    for text in (WRITTEN, "mcp: {servers: {}}\n"):  # by lines, and written anew
        file.write_text(text)
        add_server(file, "new", block)
        assert servers(file)["new"] == block


def test_a_file_with_the_key_of_other_programs_is_edited_where_its_servers_are(file: Path) -> None:
    file.write_text("mcp_servers:\n  # the first\n  first: {command: x}\n")
    add_server(file, "docs", DOCS)
    text = file.read_text()
    assert text.startswith("mcp_servers:\n  # the first\n  first: {command: x}\n  docs:\n") and "mcp:" not in text
    remove_server(file, "first")
    assert read_yaml(file, "forge.yaml").value == {"mcp_servers": {"docs": DOCS}}
