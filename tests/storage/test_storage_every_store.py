"""Every store below FORGE_HOME: a lock that is never released ends the wait, and a file over its bound is no file.

The locks are held by a plain `flock`, as another Forge process would.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.mcp.client.oauth import CredentialStore
from golem_forge.mcp.server.tokens import TokenStore
from golem_forge.storage.home import ForgeHome
from golem_forge.toolsets import memory
from golem_forge.toolsets.memory import MemoryScope, MemoryStore
from golem_forge.ui.terminal.input_line import HistoryFile
from golem_forge.usertools.share import LockRecord, add_record, drop_record, read_lock

RESOURCE, ISSUER = "https://x.test/mcp", "https://issuer.test"
LOGIN = {"tokens": {"access_token": "a"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForgeHome:
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", 0.1)
    return ForgeHome(tmp_path / "home")


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    handle = os.open(path, flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _save_login(home: ForgeHome) -> None:
    CredentialStore(home).save(RESOURCE, ISSUER, LOGIN)


def _remember(home: ForgeHome) -> None:
    MemoryStore(home.path / "memory" / "user", MemoryScope.USER).write("a", b"x", instead_of=None)


def _lock_tool(home: ForgeHome) -> None:
    names = LockRecord.__slots__
    add_record(home, LockRecord(**dict.fromkeys(names, "x")))


@pytest.mark.parametrize(
    ("lock", "change", "named"),
    [
        ("state/oauth/lock", _save_login, "state/oauth/lock"),
        ("state/oauth/lock", lambda home: CredentialStore(home).remove(RESOURCE), "state/oauth/lock"),
        ("state/.mcp-tokens.json.lock", lambda home: TokenStore(home).create("laptop"), "state/mcp-tokens.json"),
        (".tools.lock.guard", _lock_tool, "tools.lock"),
        (".tools.lock.guard", lambda home: drop_record(home, "x"), "tools.lock"),
        ("memory/user", _remember, "memory/user"),
    ],
    ids=["login", "logout", "token", "import", "remove", "memory"],
)
def test_a_lock_that_is_never_released_ends_the_wait(
    home: ForgeHome, lock: str, change: Callable[[ForgeHome], object], named: str
) -> None:
    if lock == "memory/user":
        (home.path / lock).mkdir(parents=True)
    with held(home.path / lock), pytest.raises(ForgeError, match="in use by another process; try again") as caught:
        change(home)
    assert named in str(caught.value) and str(home.path) not in str(caught.value)
    change(home)


def test_a_locked_history_is_left_alone(home: ForgeHome) -> None:
    history = HistoryFile(home.path / "history")
    history.add("one")
    with held(home.path / "history"):
        history.add("two")
    assert history.lines() == ["one"]
    history.add("three")
    assert history.lines() == ["one", "three"]


def test_an_index_of_logins_over_its_bound_is_refused_and_not_overwritten(home: ForgeHome) -> None:
    store = CredentialStore(home)
    store.save(RESOURCE, ISSUER, LOGIN)
    index = home.path / "state" / "oauth" / "index.json"
    large = index.read_text() + " " * (1 << 20)
    index.write_text(large)
    for use in (partial(store.load, RESOURCE), partial(store.save, RESOURCE, ISSUER, LOGIN)):
        with pytest.raises(ForgeError, match=r"index\.json is larger than 1048576 bytes; remove it and log in again"):
            use()
    assert index.read_text() == large


def test_a_login_over_its_bound_is_refused(home: ForgeHome) -> None:
    store = CredentialStore(home)
    store.save(RESOURCE, ISSUER, LOGIN)
    (record,) = (path for path in (home.path / "state" / "oauth").glob("*.json") if path.name != "index.json")
    record.write_text(record.read_text() + " " * (1 << 20))
    with pytest.raises(ForgeError, match="is larger than 1048576 bytes; remove it and log in again"):
        store.load(RESOURCE)


def test_a_memory_over_its_bound_is_refused_and_not_shown_in_part(home: ForgeHome) -> None:
    store = MemoryStore(home.path / "memory" / "user", MemoryScope.USER)
    _remember(home)
    (home.path / "memory" / "user" / "a.md").write_bytes(b"x" * (memory.MAX_MEMORY_BYTES + 1))
    with pytest.raises(ToolFailed, match=r"remove memory/user/a\.md in FORGE_HOME"):
        store.read("a")


def test_a_lock_of_tools_over_its_bound_is_refused(home: ForgeHome) -> None:
    _lock_tool(home)
    os.truncate(home.path / "tools.lock", (32 << 20) + 1)
    with pytest.raises(ForgeError, match="cannot be read"):
        read_lock(home)


def test_a_login_that_could_not_be_read_again_is_not_kept(home: ForgeHome) -> None:
    store = CredentialStore(home)
    with pytest.raises(ForgeError, match="more than 1048576 bytes"):
        store.save("https://a.test/mcp", "https://issuer.test", {"tokens": {"access_token": "x" * (1 << 20)}})
    assert store.load("https://a.test/mcp") is None
