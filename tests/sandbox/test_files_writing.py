"""Atomic writes: crash, mode bits, hard links, a full disk (S15-S17), parents and undo."""

from __future__ import annotations

import os
import resource
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sandbox.conftest import die, is_killed, open_zone_of

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import Opener
from golem_forge.sandbox.sandbox import Sandbox


def _temporary(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".forge-")]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_s15_killed_between_temporary_file_and_rename(workspace: Path, sandbox: Sandbox) -> None:
    def work() -> None:
        files.stage(sandbox.target("a", Verb.WRITE), b"new" * 1000)
        die()

    (workspace / "a").write_text("old")
    assert is_killed(work)
    assert (workspace / "a").read_text() == "old"
    left = _temporary(workspace)
    assert len(left) == 1 and len(left[0]) == len(".forge-.tmp") + 16 and (workspace / left[0]).stat().st_size == 3000
    files.write_atomic(sandbox.target("a", Verb.WRITE), b"next")
    assert (workspace / "a").read_text() == "next"


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o444, 0o640])
def test_s15_mode_bits_stay(sandbox: Sandbox, workspace: Path, mode: int) -> None:
    (workspace / "a").write_text("old")
    (workspace / "a").chmod(mode)
    files.write_atomic(sandbox.target("a", Verb.WRITE), b"new")
    assert _mode(workspace / "a") == mode and (workspace / "a").read_text() == "new"


def test_set_id_bits_do_not_pass_to_new_content(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    (workspace / "a").chmod(0o4755)
    files.write_atomic(sandbox.target("a", Verb.WRITE), b"new")
    assert _mode(workspace / "a") == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file capabilities needs root")
def test_capabilities_of_a_file_do_not_pass_to_new_content(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    os.setxattr(workspace / "a", "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
    files.write_atomic(sandbox.target("a", Verb.WRITE), b"new")
    assert "security.capability" not in os.listxattr(workspace / "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_the_owner_stays(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    os.chown(workspace / "a", 65534, 65534)
    files.write_atomic(sandbox.target("a", Verb.WRITE), b"new")
    assert ((workspace / "a").stat().st_uid, (workspace / "a").stat().st_gid) == (65534, 65534)


def test_new_files_and_parents_obey_the_umask(
    plain_user: Callable[[Callable[[Path], object]], object], opener: Opener
) -> None:
    expected = [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750), (0, 0o666, 0o777)]

    def attempt(place: Path) -> object:
        sandbox, zone = open_zone_of(place, opener), place / "zone"
        found = []
        for umask, _, _ in expected:
            os.umask(umask)
            files.write_atomic(sandbox.target(f"{umask}/e/new", Verb.WRITE), b"x")
            made = zone / str(umask)
            modes = [_mode(made / "e/new"), _mode(made), _mode(made / "e")]
            found.append([os.umask(0), *modes, os.listdir(made / "e")])
        return found

    assert plain_user(attempt) == [[umask, file, folder, folder, ["new"]] for umask, file, folder in expected]


def test_s16_a_hard_link_is_not_written_through(sandbox: Sandbox, workspace: Path, outside: Path) -> None:
    (outside / "canary").write_text("canary")
    os.link(outside / "canary", workspace / "a")
    files.write_atomic(sandbox.target("a", Verb.WRITE), b"new")
    assert (outside / "canary").read_text() == "canary" and (workspace / "a").read_text() == "new"


@pytest.fixture
def tiny_disk(workspace: Path) -> Iterator[Path]:
    """A file system of 64 KiB inside the zone."""
    place = workspace / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_s17_a_full_disk_leaves_the_old_content(sandbox: Sandbox, tiny_disk: Path) -> None:
    (tiny_disk / "a").write_bytes(b"old")
    for path in ("tiny/a", "tiny/sub/deep/new"):
        with pytest.raises(SandboxError) as caught:
            files.write_atomic(sandbox.target(path, Verb.WRITE), b"x" * 100_000)
        assert caught.value.code == "NO_SPACE"
        assert caught.value.message == f"No space left for '/workspace/{path}'; the old content is intact."
    assert os.listdir(tiny_disk) == ["a"] and (tiny_disk / "a").read_bytes() == b"old"
    files.write_atomic(sandbox.target("tiny/a", Verb.WRITE), b"fits")


def test_s17_a_file_size_limit_does_the_same(
    plain_user: Callable[[Callable[[Path], object]], object], opener: Opener
) -> None:
    def attempt(place: Path) -> object:
        sandbox, zone = open_zone_of(place, opener), place / "zone"
        (zone / "a").write_text("old")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            files.write_atomic(sandbox.target("a", Verb.WRITE), b"x" * 2000)
        except SandboxError as error:
            return [error.code, (zone / "a").read_text(), os.listdir(zone)]
        return []

    assert plain_user(attempt) == ["NO_SPACE", "old", ["a"]]


def test_a_failing_sync_is_an_io_error_without_remains(
    sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error", str(workspace))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(SandboxError) as caught:
        files.write_atomic(sandbox.target("d/a", Verb.WRITE), b"x")
    assert caught.value.message == "Input/output error on '/workspace/d/a'." and caught.value.code == "IO_ERROR"
    assert os.listdir(workspace) == []


def test_over_10_mib_nothing_is_changed(sandbox: Sandbox, workspace: Path) -> None:
    target = sandbox.target("d/a", Verb.WRITE)
    with pytest.raises(SandboxError) as caught:
        files.write_atomic(target, bytes(files.WRITE_LIMIT + 1))
    assert caught.value.code == "TOO_LARGE"
    assert "'/workspace/d/a' is 10485761 bytes; the limit is 10485760. " in caught.value.message
    assert os.listdir(workspace) == []
    files.write_atomic(target, b"")
    assert (workspace / "d/a").read_bytes() == b""


def test_two_new_files_in_one_new_directory(sandbox: Sandbox, workspace: Path) -> None:
    targets = [sandbox.target(f"n/m/{name}", Verb.WRITE) for name in "ab"]
    files.write_atomic(targets[0], b"a")
    targets[1].recheck()
    files.write_atomic(targets[1], b"b")
    assert sorted(os.listdir(workspace / "n/m")) == ["a", "b"]


def test_a_new_parent_that_became_a_link_is_path_changed(sandbox: Sandbox, workspace: Path, outside: Path) -> None:
    target = sandbox.target("n/m/a", Verb.WRITE)
    (workspace / "n").symlink_to(outside)
    for action in (target.recheck, lambda: files.write_atomic(target, b"x")):
        with pytest.raises(SandboxError) as caught:
            action()
        assert caught.value.code == "PATH_CHANGED"
    assert os.listdir(outside) == []


def test_a_directory_moved_out_of_the_zone_while_staged(sandbox: Sandbox, workspace: Path, outside: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d/a").write_text("old")
    for path in ("d/a", "d/new", "d/n/m/new"):
        staged = files.stage(sandbox.target(path, Verb.WRITE), b"new")
        (workspace / "d").rename(outside / "d")
        with pytest.raises(SandboxError) as caught:
            staged.commit()
        assert caught.value.code == "PATH_CHANGED"
        assert os.listdir(outside / "d") == ["a"] and (outside / "d/a").read_text() == "old"
        (outside / "d").rename(workspace / "d")


def test_stage_changes_nothing_and_discard_leaves_nothing(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    staged = [files.stage(sandbox.target(path, Verb.WRITE), b"new") for path in ("a", "n/m/b")]
    assert (workspace / "a").read_text() == "old" and not (workspace / "n/m/b").exists()
    for one in staged:
        one.discard()
    assert os.listdir(workspace) == ["a"]


def test_undo_puts_back_content_mode_and_times(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    (workspace / "a").chmod(0o751)
    os.utime(workspace / "a", ns=(10**18, 10**18))
    staged = [files.stage(sandbox.target(path, Verb.WRITE), b"new") for path in ("a", "n/m/b", "n/c")]
    for one in staged:
        one.commit()
    assert (workspace / "a").read_text() == "new" and (workspace / "n/c").read_text() == "new"
    for one in reversed(staged):
        one.undo()
    assert os.listdir(workspace) == ["a"]
    assert ((workspace / "a").read_text(), _mode(workspace / "a")) == ("old", 0o751)
    assert (workspace / "a").stat().st_mtime_ns == 10**18


def test_undo_does_not_touch_someone_elses_later_file(sandbox: Sandbox, workspace: Path) -> None:
    staged = files.stage(sandbox.target("a", Verb.WRITE), b"new")
    staged.commit()
    (workspace / "a").rename(workspace / "ours")
    (workspace / "a").write_text("theirs")
    with pytest.raises(SandboxError, match="changed while"):
        staged.undo()
    assert (workspace / "a").read_text() == "theirs"


def test_a_reader_meets_the_old_or_the_new_content(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    with (workspace / "a").open() as held:
        files.write_atomic(sandbox.target("a", Verb.WRITE), b"new")
        assert held.read() == "old"
    assert files.read_bytes(sandbox.target("a", Verb.READ)) == b"new"
