"""Private files: read whole or not at all, replaced in one step, locked for two seconds at most."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE, within

from golem_forge.core.errors import ForgeError
from golem_forge.storage import home
from golem_forge.storage.home import (
    JsonFile,
    LockTimeout,
    create_private,
    locked,
    make_private_dir,
    open_lock,
    open_private,
    read_json,
    read_private,
    replacing,
    try_lock,
    write_private,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def test_reads_up_to_the_limit_and_refuses_one_byte_more(path: Path) -> None:
    path.write_bytes(b"12345")
    assert read_private(path, 5) == b"12345"
    with pytest.raises(OSError, match="too large"):
        read_private(path, 4)


def test_a_file_that_grows_while_it_is_read_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"1234")
    status = os.stat(path)
    path.write_bytes(b"123456")
    monkeypatch.setattr(os, "fstat", lambda handle: status)
    with pytest.raises(OSError, match="too large"):
        read_private(path, 4)


def test_follows_no_link_and_waits_for_no_pipe(path: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    path.symlink_to("target")
    with pytest.raises(OSError, match="symbolic links"):
        read_private(path, 10)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match="no file"):
            read_private(tmp_path / name, 10)


def test_a_refused_file_is_closed_again(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(OSError, match="no file"):
            open_private(tmp_path, 10)
    assert len(os.listdir("/proc/self/fd")) == before


def test_owned_refuses_what_others_may_write(path: Path) -> None:
    path.write_text("x")
    path.chmod(0o600)
    open_private(path, 10, owned=True).close()
    path.chmod(0o620)
    open_private(path, 10).close()
    with pytest.raises(PermissionError, match="another user"):
        open_private(path, 10, owned=True)


def test_read_json(path: Path) -> None:
    path.write_text('{"a": 1}')
    assert read_json(path, 100) == {"a": 1}
    path.write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        read_json(path, 100)


@pytest.mark.parametrize("durable", [True, False])
def test_write_replaces_the_file_and_leaves_nothing_beside_it(path: Path, durable: bool) -> None:
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_write_replaces_a_link_and_not_its_target(path: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    path.symlink_to("target")
    write_private(path, b"new")
    assert not path.is_symlink()
    assert (tmp_path / "target").read_text() == "mine"


def test_a_failed_write_keeps_the_old_file(path: Path) -> None:
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"ne", "w"])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == [path.name]


def test_a_new_file_is_private_and_never_an_old_one(path: Path, tmp_path: Path) -> None:
    with create_private(path) as file:
        file.write(b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to("elsewhere")
    for taken in (path, tmp_path / "link"):
        with pytest.raises(FileExistsError):
            create_private(taken)


def test_private_directories(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private_dir(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    make_private_dir(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_lock_that_another_process_keeps_is_given_up_after_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home.LOCK_SECONDS == 2
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", 0.3)
    lock = tmp_path / "state.lock"
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        start = time.monotonic()
        with within(0.3), pytest.raises(LockTimeout) as caught, locked(lock, "~/.forge/state.lock"):
            pass
        assert time.monotonic() - start > 0.29
        assert "~/.forge/state.lock is in use by another process; try again" in caught.value.message
        assert isinstance(caught.value, ForgeError) and isinstance(caught.value, OSError)
        assert caught.value.strerror == str(caught.value) == caught.value.message
        holder.stdin.close()
        holder.wait()
    with locked(lock):
        pass


def test_a_lock_excludes_its_own_process_too_and_ends_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", 0.05)
    lock = tmp_path / "state.lock"
    with locked(lock), pytest.raises(LockTimeout, match=r"state\.lock is in use"), locked(lock):
        pass
    with locked(lock):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_readers_share_a_lock(tmp_path: Path) -> None:
    handles = [open_lock(tmp_path / "lock") for _ in range(3)]
    assert try_lock(handles[0], shared=True)
    assert try_lock(handles[1], shared=True)
    assert not try_lock(handles[2])
    for handle in handles:
        os.close(handle)


def test_a_lock_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


# --- JsonFile


def _settle(path: Path) -> None:
    """Longer ago than one tick of the file system's clock."""
    time.sleep(0.15)
    assert path.exists()


def _json_file(path: Path, parsed: list[object] | None = None) -> JsonFile[dict[str, int]]:
    def parse(value: object) -> dict[str, int]:
        if parsed is not None:
            parsed.append(value)
        if not isinstance(value, dict):
            raise ValueError("no mapping")
        return value

    return JsonFile(path, parse, limit=1000, lock=path.with_name("lock"))


def test_a_missing_file_is_none(path: Path) -> None:
    assert _json_file(path).read() is None
    assert _json_file(path / "below" / "it").read() is None
    assert _json_file(path).stamp is None


def test_parses_once_for_each_change(path: Path) -> None:
    parsed: list[object] = []
    file = _json_file(path, parsed)
    with file.locked():
        file.write('{"a": 1}')
    _settle(path)
    assert [file.read(), file.read(), file.read()] == [{"a": 1}] * 3
    assert len(parsed) == 1
    before = file.stamp
    write_private(path, b'{"a": 2}')
    assert file.stamp != before
    assert file.read() == {"a": 2}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b" " * 1001], ids=["json", "shape", "utf-8", "size"])
def test_a_file_that_cannot_be_used_raises(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises((OSError, ValueError)):
        _json_file(path).read()


def test_a_text_that_could_not_be_read_again_is_not_written(path: Path) -> None:
    file = _json_file(path)
    with file.locked(), pytest.raises(OSError, match="too large"):
        file.write(json.dumps({"a": "x" * 1000}))
    assert not path.exists()


def _count_up(path: Path, times: int) -> None:
    file = _json_file(path)
    for _ in range(times):
        with file.locked():
            count = (file.read() or {"n": 0})["n"]
            file.write(json.dumps({"n": count + 1}))


def test_processes_do_not_overwrite_each_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", PATIENCE)
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=_count_up, args=(path, 20)) for _ in range(4)]
    for each in running:
        each.start()
    for each in running:
        each.join()
        assert each.exitcode == 0
    assert _json_file(path).read() == {"n": 80}


def test_a_lock_timeout_is_not_taken_for_the_end_of_another_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", 0.01)
    lock = tmp_path / "lock"
    with locked(lock), pytest.raises(OSError, match="in use by another process") as told, locked(lock):
        pass
    assert isinstance(told.value, ForgeError) and not isinstance(told.value, TimeoutError)


def test_a_high_limit_takes_no_memory_of_its_own(path: Path) -> None:
    import tracemalloc

    path.write_bytes(b"x" * 100)
    tracemalloc.start()
    assert len(read_private(path, 1 << 30)) == 100
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
