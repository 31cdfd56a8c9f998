"""The book of trust: approvals bound to a config's digest, pins, concurrent writers, and files not to be believed."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.mcp.client import trust_store
from golem_forge.mcp.client.approval_text import server_diff
from golem_forge.mcp.client.model import RemoteTool
from golem_forge.mcp.client.tool_list import check_entries
from golem_forge.mcp.client.trust_store import MAX_DEFINITIONS_BYTES, PinState, ServerTrustError, ServerTrustStore
from golem_forge.storage.home import ForgeHome, locked

CANARY = "sk-canary-5e1f0c"
SPEC = ServerSpec(
    name="git", scope="/p", origin="forge.yaml:3", command="uvx", args=("mcp-server-git",), env={"TOKEN": CANARY}
)


def book_path(home: ForgeHome) -> Path:
    return home.path / "state" / "mcp.json"


def tools(*names: str, description: str = "Does it.") -> tuple[RemoteTool, ...]:
    entries: list[Any] = [{"name": n, "description": description, "inputSchema": {"type": "object"}} for n in names]
    return check_entries("git", entries).tools


def test_nothing_is_approved_until_somebody_did(home: ForgeHome) -> None:
    book = ServerTrustStore(home)
    assert not book.approved(SPEC)
    assert book.approved_before(SPEC) is None
    assert book.pins("/p", "git") == {}
    assert book.problem == ""
    assert not home.path.exists()


def test_4_an_approval_is_for_this_config_alone(home: ForgeHome) -> None:
    ServerTrustStore(home).approve_server(SPEC, "anna")
    book = ServerTrustStore(home)
    assert book.approved(SPEC)
    assert not book.approved(replace(SPEC, scope="/other"))
    assert not book.approved(replace(SPEC, name="git2"))
    for change in ({"args": ("other",)}, {"env": {"TOKEN": "x"}}, {"network": False}, {"zones": {"w": "rw"}}):
        changed = replace(SPEC, **change)
        assert not book.approved(changed)
        assert server_diff(book.approved_before(changed), changed)
    assert book.approved(replace(SPEC, idle_timeout=5, deny=("x",)))


def test_the_file_is_for_its_owner_and_holds_no_value_of_a_variable(home: ForgeHome) -> None:
    ServerTrustStore(home).approve_server(SPEC, "anna")
    assert stat.S_IMODE(book_path(home).stat().st_mode) == 0o600
    assert CANARY not in book_path(home).read_text()
    assert sorted(os.listdir(home.path / "state")) == ["mcp.json", "mcp.json.lock"]


def test_another_process_is_seen(home: ForgeHome) -> None:
    book, other = ServerTrustStore(home), ServerTrustStore(home)
    before = book.stamp
    assert not book.approved(SPEC)
    other.approve_server(SPEC, "anna")
    assert book.stamp != before
    assert book.approved(SPEC)
    other.forget("/p", "git")
    assert not book.approved(SPEC)


def test_readers_do_not_read_again_while_nothing_changed(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    ServerTrustStore(home).approve_server(SPEC, "anna")
    old = os.stat(book_path(home)).st_mtime - 10
    os.utime(book_path(home), (old, old))
    book = ServerTrustStore(home)
    time.sleep(0.15)  # until the stamp of the file can be relied on
    assert book.approved(SPEC)
    monkeypatch.setattr("golem_forge.storage.home.open_private", None)
    assert book.approved(SPEC)
    assert book.pins("/p", "git") == {}


def test_forgetting_takes_approval_and_pins(home: ForgeHome) -> None:
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")
    book.pin_new("/p", "git", tools("a"))
    book.forget("/p", "git")
    assert not book.approved(SPEC)
    assert book.pins("/p", "git") == {}
    assert not book.was_listed("/p", "git")
    book.forget("/p", "never seen")


def test_an_approval_keeps_the_pins(home: ForgeHome) -> None:
    book = ServerTrustStore(home)
    book.pin_new("/p", "git", tools("a"))
    book.approve_server(replace(SPEC, args=("other",)), "anna")
    assert set(book.pins("/p", "git")) == {"a"}


@table(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b'{"version": 2, "servers": []}',
        b'{"version": 1, "servers": {}}',
        b'{"version": 1, "servers": [7]}',
        b'{"version": 1, "servers": [{"scope": "", "server": "s", "approval": {}, "listed": true, "pins": {}}]}',
        b'{"version": 1, "servers": [{"scope": "", "server": "s", "approval": null, "listed": 1, "pins": {}}]}',
        b'{"version": 1, "servers": [{"scope": "", "server": "s", "approval": null, "listed": true, "pins": {"a": {'
        b'"digest": "x", "definition": null, "at": "", "state": "trusted"}}}]}',
        b"[" * 200_000,
    ],
)
def test_a_book_that_cannot_be_believed_is_empty_and_put_aside(home: ForgeHome, content: bytes) -> None:
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")
    book_path(home).write_bytes(content)
    assert not book.approved(SPEC)
    assert book.pins("/p", "git") == {}
    assert "must be approved again" in book.problem
    assert str(home.path) not in book.problem
    book.approve_server(SPEC, "anna")
    assert book.approved(SPEC)
    assert book.problem == ""
    assert (home.path / "state" / "mcp.json.broken").read_bytes() == content


def test_a_link_a_pipe_and_a_folder_are_no_book(home: ForgeHome, tmp_path: Path) -> None:
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")
    os.rename(book_path(home), tmp_path / "elsewhere.json")
    os.symlink(tmp_path / "elsewhere.json", book_path(home))
    assert not book.approved(SPEC)
    os.unlink(book_path(home))
    os.mkfifo(book_path(home))
    assert not book.approved(SPEC)
    assert book.problem
    os.unlink(book_path(home))
    book_path(home).mkdir()
    assert not book.approved(SPEC)
    assert book.problem


def test_a_book_over_its_bound_is_not_read(home: ForgeHome) -> None:
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")
    os.truncate(book_path(home), trust_store.MAX_FILE_BYTES + 1)
    assert not book.approved(SPEC)
    assert "too large" in book.problem


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    with pytest.raises(ServerTrustError, match="cannot be written"):
        ServerTrustStore(ForgeHome(tmp_path / "home")).approve_server(SPEC, "anna")


def test_a_lock_that_is_never_released_ends_the_wait(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", 0.05)
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")
    with (
        locked(home.path / "state" / "mcp.json.lock"),
        pytest.raises(ServerTrustError, match="in use by another process"),
    ):
        book.forget("/p", "git")
    assert book.approved(SPEC)


def test_a_write_that_fails_leaves_the_old_book(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(ServerTrustError, match="No space left"):
        book.forget("/p", "git")
    monkeypatch.undo()
    assert ServerTrustStore(home).approved(SPEC)
    assert sorted(os.listdir(home.path / "state")) == ["mcp.json", "mcp.json.lock"]


WRITER = """
import sys
from pathlib import Path
from golem_forge.storage import home as home_files
from golem_forge.storage.home import ForgeHome, locked
from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.mcp.client.trust_store import ServerTrustStore as TrustBook
home_files.LOCK_SECONDS = 60.0  # the other one may stand still while it has the lock
book = TrustBook(ForgeHome(Path(sys.argv[1])))
for number in range(20):
    book.approve_server(ServerSpec(name=f"{sys.argv[2]}{number}", scope="", origin="x", command="c"), "anna")
"""


def test_processes_that_write_at_once_lose_nothing(home: ForgeHome, tmp_path: Path, ready_forge: Any) -> None:
    (tmp_path / "writer.py").write_text(WRITER)
    command = ["python", str(tmp_path / "writer.py"), str(home.path)]
    writers = [ready_forge.start([*command, name], cwd=tmp_path, env=os.environ) for name in "ab"]

    for writer in writers:
        with writer:
            _, errors = writer.communicate(timeout=PATIENCE)
        assert writer.returncode == 0, errors

    book = ServerTrustStore(home)
    for name in (f"{letter}{number}" for letter in "ab" for number in range(20)):
        assert book.approved(ServerSpec(name=name, scope="", origin="x", command="c"))


def test_definitions_are_kept_up_to_a_bound_and_digests_always(home: ForgeHome) -> None:
    book = ServerTrustStore(home)
    small = tools("small")
    large = tools(*(f"t{number}" for number in range(80)), description="x" * 60_000)
    book.pin_new("/p", "git", (*large, *small))
    pins = book.pins("/p", "git")
    assert len(pins) == 81
    assert pins["small"].definition is not None
    kept = [pin for pin in pins.values() if pin.definition is not None]
    assert 60 < len(kept) < 81
    assert all(pins[tool.name].digest == tool.digest for tool in large)
    assert book_path(home).stat().st_size < MAX_DEFINITIONS_BYTES + 100_000


def test_a_server_with_other_tools_each_time_does_not_fill_the_book(
    home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "MAX_PINS", 100)
    book = ServerTrustStore(home)
    book.pin_new("/p", "git", tools("first", "second"))
    for round_ in range(4):
        book.pin_new("/p", "git", tools(*(f"r{round_}-{number}" for number in range(40))))
    pins = book.pins("/p", "git")
    assert len(pins) <= 100
    assert {"first", "second", "r3-0", "r3-39"} <= pins.keys()
    assert pins["first"].state is PinState.PINNED


def test_what_is_written_is_what_is_read(home: ForgeHome) -> None:
    book = ServerTrustStore(home)
    book.approve_server(SPEC, "anna")
    book.pin_new("/p", "git", tools("a", "strange \u200b name"))
    data = json.loads(book_path(home).read_text())
    assert data["version"] == 1
    assert data["servers"][0]["approval"]["who"] == "anna"
    pins = ServerTrustStore(home).pins("/p", "git")
    assert pins == book.pins("/p", "git")
    assert pins["a"].definition == {"name": "a", "description": "Does it.", "inputSchema": {"type": "object"}}
