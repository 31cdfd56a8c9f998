"""The scan: what it finds, that it looks again exactly when something changed, and what it says has changed."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import descriptors
from tests.deadlines import PATIENCE

from golem_forge.sandbox.handles import best_opener
from golem_forge.sandbox.walls import changes as changes_module
from golem_forge.sandbox.walls import directories
from golem_forge.sandbox.walls import scan as module
from golem_forge.sandbox.walls.changes import Inotify, ScanMark
from golem_forge.sandbox.walls.planner import nothing_secret_below
from golem_forge.sandbox.walls.scan import ZoneScan, shared_scan
from golem_forge.sandbox.zones import ZoneSpec, open_zone


def _found(scan: ZoneScan) -> set[str]:
    return {"/".join(finding.parts) for finding in scan.findings}


def _scanned(root: Path) -> ZoneScan:
    scan = ZoneScan(str(root))
    scan.refresh()
    return scan


def _make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


@pytest.fixture(params=["watched", "by its times"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every zone of these tests is watched from its first directory on, or never; and each look has its time."""
    for limit in ("_FIRST_LOOK_S", "_LONGEST_LOOK_S"):
        monkeypatch.setattr(module, limit, PATIENCE)
    way: str = request.param
    if way == "watched":
        monkeypatch.setattr(module, "_WATCH_FROM_DIRECTORIES", 0)
    else:
        monkeypatch.setattr(module, "open_inotify", lambda directories: None)
    return way


def test_protected_names_down_to_depth_four_and_secret_ones_in_all(tmp_path: Path) -> None:
    _make(tmp_path, ".git/hooks/", ".git/config", ".git/HEAD", "a/.env", "a/b/c/.bashrc", "a/b/c/.git/hooks/")
    _make(tmp_path, "a/b/c/d/e/f/.env", "main.worker", "plain.py", ".config/fish/", ".Config/fish/", "a/X.PEM")
    scan = _scanned(tmp_path)

    assert _found(scan) == {
        *(".git/hooks", ".git/config", "a/.env", "a/b/c/.bashrc", "a/b/c/.git/hooks"),
        *("main.worker", ".config/fish", ".Config/fish", "a/X.PEM", "a/b/c/d/e/f/.env"),
    }


def test_what_does_not_count(tmp_path: Path) -> None:
    _make(tmp_path, "node_modules/x/.bashrc", ".venv/pyvenv.cfg", ".venv/lib/python3.12/site-packages/cacert.pem")
    _make(tmp_path, ".git/objects/x.pem")
    _make(tmp_path, ".git/refs/heads/x.key", "link/.env")
    (tmp_path / "outside").symlink_to("/etc")
    assert _found(_scanned(tmp_path)) == {"link/.env"}


SECRETS = [
    *("node_modules/x/.env", "node_modules/@a/b/node_modules/c/lib/.npmrc", "vendor/x/id_rsa", ".tox/py/a/b/c/.netrc"),
    *(".venv/lib/python3.12/site-packages/pkg/data/credentials.json", "a/b/c/d/e/f/g/h/.aws", "target/x/a.p12"),
    *("a/b/c/d/e/.kube/config", "node_modules/x/.docker/config.json", ".git/own/x/.env", "a/b/c/d/e/f/prod.key"),
]


def test_a_secret_is_found_wherever_it_lies(tmp_path: Path) -> None:
    _make(tmp_path, *SECRETS)
    assert {*SECRETS} <= _found(_scanned(tmp_path))


def test_sockets_and_fifos_are_found_wherever_they_lie(tmp_path: Path) -> None:
    places = ("", "a/b/c/d/e/f/", "node_modules/x/y/", ".git/objects/ab/")
    scan = ZoneScan(str(tmp_path))
    with contextlib.ExitStack() as stack:
        for place in places:
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
            os.mkfifo(tmp_path / place / "line")
            bound = stack.enter_context(socket.socket(socket.AF_UNIX))
            here = os.open(tmp_path / place, os.O_PATH)
            stack.callback(os.close, here)
            bound.bind(f"/proc/self/fd/{here}/s")
        scan.refresh()

    assert _found(scan) == {f"{place}{name}" for place in places for name in ("line", "s")}
    assert {finding.kind for finding in scan.findings} == {directories.EntryKind.SOCKET}


PUBLIC = "# A\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
PRIVATE = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"
PACKAGES = ".venv/lib/python3.12/site-packages"


class TestContent:
    """In directories that installers fill, a `*.pem` is a secret by what is in it."""

    def _judged(self, root: Path, name: str, content: bytes) -> bool:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
        return name in _found(_scanned(root))

    def test_certificates_are_none(self, tmp_path: Path) -> None:
        for place in (f"{PACKAGES}/certifi", "node_modules/a/test", "vendor/x", "venv/x", ".tox/p/x"):
            assert not self._judged(tmp_path, f"{place}/cacert.pem", PUBLIC.encode() * 3000), place
            assert self._judged(tmp_path, f"{place}/server.pem", PUBLIC.encode() * 3000 + PRIVATE.encode()), place

    def test_what_is_not_certainly_public_is_one(self, tmp_path: Path) -> None:
        odd = (PRIVATE.encode(), b"\x30\x82\x01", b"sk-live-token", PUBLIC.encode() * 30000)
        for number, content in enumerate(odd):
            assert self._judged(tmp_path, f"node_modules/a/{number}.key", content), content[:50]

    def test_elsewhere_and_for_other_names_the_name_counts(self, tmp_path: Path) -> None:
        assert self._judged(tmp_path, "certs/ca.pem", PUBLIC.encode())
        assert self._judged(tmp_path, "node_modules/a/id_rsa.pem", PUBLIC.encode())
        assert self._judged(tmp_path, "node_modules/a/.env.pem", PUBLIC.encode())

    def test_a_link_there_counts_by_what_it_leads_to(self, tmp_path: Path) -> None:
        _make(tmp_path, "node_modules/a/")
        (tmp_path / "node_modules" / "a" / "ca.pem").symlink_to("/etc/ssl/cert.pem")
        assert _found(_scanned(tmp_path)) == set()

    def test_another_content_is_noticed(self, tmp_path: Path) -> None:
        name = f"{PACKAGES}/certifi/cacert.pem"
        _make(tmp_path, name)
        written = (tmp_path / name).parent.stat().st_ctime_ns
        while time.time_ns() <= written + 2 * directories._SETTLED_NS:  # its own times say that nothing changed in it
            time.sleep(0.01)
        scan = _scanned(tmp_path)
        for content, found in ((PUBLIC, set()), (PRIVATE, {name}), (PUBLIC, set()), (PRIVATE, {name})):
            (tmp_path / name).write_text(content)
            scan.refresh()
            assert _found(scan) == found

    def test_a_branch_is_none_and_a_key_in_its_place_is(self, tmp_path: Path) -> None:
        assert not self._judged(tmp_path, ".git/refs/heads/fix.key", b"a" * 40 + b"\n")
        assert not self._judged(tmp_path, ".git/logs/refs/heads/fix.key", b"0" * 40 + b" " + b"a" * 40 + b" me <m> 1\n")
        assert self._judged(tmp_path, ".git/refs/heads/prod.key", PRIVATE.encode())

    def test_many_in_one_directory_are_found_one_by_one(self, tmp_path: Path) -> None:
        names = {f"node_modules/a/test/{number}.key" for number in range(30)}
        _make(tmp_path, "node_modules/a/test/run.js")
        for name in names:
            (tmp_path / name).write_text(PRIVATE)
        assert _found(_scanned(tmp_path)) == names


def test_past_the_most_entries_it_says_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 100)
    _make(tmp_path, *(f"node_modules/a/{number}" for number in range(120)), "node_modules/b/c/.env", "x/.env")
    scan = _scanned(tmp_path)
    assert scan.stopped_at is not None and scan.stopped_at[0] == "node_modules"
    assert "x/.env" in _found(scan) and not scan.complete(()) and scan.complete(("x",))
    assert not scan.changed_since(scan.mark()).complete
    assert any("stopped at /workspace/node_modules/" in notice for notice in scan.notices("/workspace"))

    for number in range(120):
        (tmp_path / "node_modules" / "a" / str(number)).unlink()
    scan.refresh()
    scan.refresh()
    assert scan.stopped_at is None and list(scan.notices("/workspace")) == []
    assert _found(scan) == {"x/.env", "node_modules/b/c/.env"}


def test_submodules_and_worktrees(tmp_path: Path) -> None:
    _make(tmp_path, ".git/modules/libs/one/config", ".git/modules/libs/one/hooks/", ".git/worktrees/t/gitdir")
    _make(tmp_path, ".git/modules/libs/one/objects/x.key", "libs/one/.git")
    _make(tmp_path, ".git/modules/libs/one/HEAD")
    scan = _scanned(tmp_path)

    assert _found(scan) == {
        *(".git/modules/libs/one/config", ".git/modules/libs/one/hooks", ".git/worktrees/t/gitdir", "libs/one/.git"),
    }


@pytest.fixture
def settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ZoneScan]:
    """`settle("a/x", …)`: a scan of these, which are old enough that it trusts their listings."""

    def settle(*names: str) -> ZoneScan:
        monkeypatch.setattr(directories, "_SETTLED_NS", changes_module.CLOCK_NS)
        _make(tmp_path, *names)
        scan = _scanned(tmp_path)
        time.sleep(0.04)
        scan.refresh()
        return scan

    return settle


@pytest.fixture
def settled(settle: Callable[..., ZoneScan]) -> ZoneScan:
    return settle("a/b/x", "c/y", "top")


def test_an_unchanged_tree_is_not_listed_again(settled: ZoneScan, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(module.os, "scandir", never)

    assert settled.refresh() is False


def test_a_new_name_is_found(settled: ZoneScan, tmp_path: Path) -> None:
    made = set()
    for name in ("a/b/.env", "new/.env", "c/deep/er/.env", ".env", "node_modules/a/b/c/d/e/.env"):
        _make(tmp_path, name)
        made.add(name)

        assert settled.refresh() is True
        assert _found(settled) == made


def test_a_name_that_went_is_forgotten_with_all_below(settled: ZoneScan, tmp_path: Path) -> None:
    _make(tmp_path, "a/b/.env", "a/.git/hooks/")
    settled.refresh()

    (tmp_path / "a").rename(tmp_path / "z")

    assert settled.refresh() is True
    assert _found(settled) == {"z/b/.env", "z/.git/hooks"}


def test_a_directory_exchanged_for_another_is_noticed(settled: ZoneScan, tmp_path: Path) -> None:
    _make(tmp_path, "other/b/.env")
    settled.refresh()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "other").rename(tmp_path / "a")

    settled.refresh()

    assert _found(settled) == {"a/b/.env"}


def test_times_set_back_hide_nothing(settled: ZoneScan, tmp_path: Path) -> None:
    before = (tmp_path / "c").stat()
    _make(tmp_path, "c/.env")
    os.utime(tmp_path / "c", ns=(before.st_atime_ns, before.st_mtime_ns))

    assert settled.refresh() is True
    assert _found(settled) == {"c/.env"}


def test_a_change_in_the_tick_of_the_listing_is_found(tmp_path: Path) -> None:
    scan = ZoneScan(str(tmp_path))
    for index in range(50):
        scan.refresh()
        _make(tmp_path, f"{index}.key")
        scan.refresh()
        assert f"{index}.key" in _found(scan)


def test_a_closed_directory_is_an_empty_one(tmp_path: Path) -> None:
    _make(tmp_path, "closed/.env")
    (tmp_path / "closed").chmod(0)
    scan = ZoneScan(str(tmp_path))
    try:
        scan.refresh()
        assert _found(scan) <= {"closed/.env"}  # root may look
        assert scan.refresh() in (True, False)
    finally:
        (tmp_path / "closed").chmod(0o700)
    scan.refresh()
    assert _found(scan) == {"closed/.env"}


class TestComplete:
    def _complete(self, root: Path, path: str = "") -> bool:
        return _scanned(root).complete(tuple(path.split("/")) if path else ())

    def test_where_every_name_was_seen(self, tmp_path: Path) -> None:
        _make(tmp_path, ".git/objects/aa/x", ".git/HEAD", ".git/refs/heads/main", "a/b/c/d/x", "top")

        assert self._complete(tmp_path) and self._complete(tmp_path, "a/b") and self._complete(tmp_path, "top")
        assert not self._complete(tmp_path, "missing")

    def test_deep_names_are_seen_too(self, tmp_path: Path) -> None:
        names = ("a/b/c/d/e/x", "a/node_modules/x", "a/.git/own/x")
        _make(tmp_path, *names, "other/x")

        assert self._complete(tmp_path) and all(self._complete(tmp_path, name) for name in names)
        assert not any(self._complete(tmp_path, f"{name}-missing") for name in names)


def test_a_whole_look_goes_as_deep_as_a_program_would(tmp_path: Path) -> None:
    deep = tmp_path / "src" / "main" / "java" / "com" / "acme" / "app"
    deep.mkdir(parents=True)
    (deep / "App.java").write_text("x")
    (tmp_path / ".venv" / "lib" / "certifi").mkdir(parents=True)
    (tmp_path / ".venv" / "lib" / "certifi" / "cacert.pem").write_text("x")
    zone = open_zone(ZoneSpec(name="workspace", path=tmp_path), best_opener())
    assert nothing_secret_below(zone, ("src",), set(), hidden=True)
    assert nothing_secret_below(zone, (), set(), hidden=False)
    assert not nothing_secret_below(zone, (), set(), hidden=True)
    (deep / "prod.key").write_text("x")
    assert not nothing_secret_below(zone, ("src",), set(), hidden=False)
    parts = ("src", "main", "java", "com", "acme", "app", "prod.key")
    assert nothing_secret_below(zone, ("src",), {parts}, hidden=False), "what walls mask is no secret any more"


def test_a_watched_zone_without_changes_is_not_looked_at(
    settled: ZoneScan, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how != "watched":
        pytest.skip("its times are looked at")
    looks = []
    monkeypatch.setattr(module.os, "stat", lambda *_, **__: looks.append(_) or os.lstat("/"))
    monkeypatch.setattr(module, "stamp_at", lambda path: looks.append(path) or settled._listings[()].stamp)

    assert settled.refresh() is False
    assert len(looks) == 1


def test_what_is_written_below_deep_directories_is_no_other_version(settled: ZoneScan, tmp_path: Path) -> None:
    _make(tmp_path, "node_modules/a/b/", ".venv/lib/python3/site-packages/x/")
    settled.refresh()
    before, findings = settled.version, settled.findings

    _make(tmp_path, "node_modules/a/b/index.js", "node_modules/new/x.js", ".venv/lib/python3/site-packages/x/y.py")

    assert settled.refresh() is False and settled.version == before and settled.findings is findings


def test_a_scan_that_is_gone_holds_nothing_open(tmp_path: Path) -> None:
    _make(tmp_path, *(f"{number}/x" for number in range(50)))
    before = descriptors.held()
    scan = _scanned(tmp_path)
    del scan
    assert descriptors.no_more_than(before)


def test_where_watches_are_used_up_times_are_looked_at(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Inotify, directory: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Inotify, "watch", refuse)
    _make(tmp_path, "a/x", "b/c/y")
    before = descriptors.held()
    scan = _scanned(tmp_path)
    mark = scan.mark()
    _make(tmp_path, "b/c/.env", "node_modules/n/z")
    assert {"/".join(parts) for parts in scan.changed_since(mark).paths} >= {"b/c/.env", "node_modules/n/z"}
    assert _found(scan) == {"b/c/.env"}
    assert descriptors.no_more_than(before)


def test_one_directory_has_one_scan(tmp_path: Path) -> None:
    one = shared_scan(str(tmp_path))
    assert shared_scan(str(tmp_path)) is one
    assert shared_scan(str(tmp_path), [".envrc"]) is not one


class TestChanges:
    @pytest.fixture
    def scan(self, settle: Callable[..., ZoneScan]) -> ZoneScan:
        return settle(
            *("a/b/old", "a/b/other", "node_modules/n/lib/index.js", "sub/.git/config", ".git/config", "top"),
            *("a/b/c/d/e/f/deep", "away/x/y"),
        )

    def _since(self, scan: ZoneScan, mark: ScanMark) -> set[str]:
        changes = scan.changed_since(mark)
        assert changes.complete
        return {"/".join(parts) for parts in changes.paths}

    def test_nothing(self, scan: ZoneScan) -> None:
        assert self._since(scan, scan.mark()) == set()

    @pytest.mark.parametrize("change", ["write", "append", "mode", "truncate", "mapped", "times"])
    def test_a_file_that_was_there(self, scan: ZoneScan, tmp_path: Path, change: str) -> None:
        names = ("a/b/old", "top", "node_modules/n/lib/index.js", "sub/.git/config", "a/b/c/d/e/f/deep")
        for name in names:
            (tmp_path / name).write_text("12345678")
        mark = self._later(scan)

        for name in names:
            self._change(tmp_path / name, change)

            assert self._since(scan, mark) == {name}
            mark = self._later(scan)
            assert name not in self._since(scan, mark)

    def _change(self, file: Path, change: str) -> None:
        before = file.stat()
        match change:
            case "write":
                file.write_text("87654321")
            case "append":
                with file.open("a") as stream:
                    stream.write("x")
            case "mode":
                file.chmod(0o755)
            case "truncate":
                os.truncate(file, 3)
            case "mapped":
                with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 8) as memory:
                    memory[0:1] = b"x"
                    memory.flush()
            case "times":
                file.write_text("87654321")
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _later(self, scan: ZoneScan) -> ScanMark:
        """The clock that files have goes in steps, and is compared with others: what changed shortly before a mark may
        be told again."""
        time.sleep(0.04)
        scan.refresh()
        return scan.mark()

    def test_what_is_new(self, scan: ZoneScan, tmp_path: Path) -> None:
        mark = scan.mark()
        _make(tmp_path, "a/b/new", "fresh/er/x", "node_modules/m/.bin/run", "sub/.git/hooks/post-checkout")
        (tmp_path / "link").symlink_to("/etc/passwd")
        os.link(tmp_path / "top", tmp_path / "a" / "hard")
        os.mkfifo(tmp_path / "line")
        assert self._since(scan, mark) >= {
            *("a/b/new", "fresh/er/x", "node_modules/m/.bin/run", "sub/.git/hooks/post-checkout", "link", "a/hard"),
            *("line", "fresh", "fresh/er"),
        }

    def test_what_is_renamed_is_told_with_all_that_is_in_it(self, scan: ZoneScan, tmp_path: Path) -> None:
        mark = scan.mark()
        (tmp_path / "away").rename(tmp_path / "node_modules" / "here")
        (tmp_path / "top").rename(tmp_path / "a" / "moved")
        found = self._since(scan, mark)
        assert found >= {"node_modules/here", "node_modules/here/x", "node_modules/here/x/y", "a/moved"}
        _make(tmp_path, "node_modules/here/x/z")
        assert "node_modules/here/x/z" in self._since(scan, mark)

    def test_a_directory_exchanged_for_another(self, scan: ZoneScan, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").chmod(0o755)
        mark = self._later(scan)
        (tmp_path / "a" / "b").rename(tmp_path / "kept")
        (tmp_path / "away").rename(tmp_path / "a" / "b")
        assert self._since(scan, mark) >= {"a/b/x", "a/b/x/y", "kept/old"}

    def test_a_directory_with_another_mode(self, scan: ZoneScan, tmp_path: Path) -> None:
        mark = self._later(scan)
        (tmp_path / "a" / "b").chmod(0o777)
        assert self._since(scan, mark) == {"a/b"}

    def test_of_the_repository_at_the_root_nothing(self, scan: ZoneScan, tmp_path: Path) -> None:
        mark = self._later(scan)
        _make(tmp_path, ".git/hooks/x", ".git/objects/ab/cd")
        (tmp_path / ".git" / "config").write_text("x")
        assert self._since(scan, mark) == set()

    def test_each_mark_has_its_own_changes(self, scan: ZoneScan, tmp_path: Path) -> None:
        first = self._later(scan)
        _make(tmp_path, "one")
        second = self._later(scan)
        _make(tmp_path, "two")
        assert self._since(scan, first) == {"one", "two"}
        assert self._since(scan, second) == {"two"}
        assert self._since(scan, first) == {"one", "two"}

    def test_more_than_the_log_holds(self, scan: ZoneScan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(changes_module, "_MOST_LOGGED", 10)
        mark = self._later(scan)
        (tmp_path / "away").rename(tmp_path / "here")
        names = {f"a/{number}" for number in range(50)}
        _make(tmp_path, *names)
        assert self._since(scan, mark) >= {*names, "here/x", "here/x/y"}
        later = self._later(scan)
        _make(tmp_path, "z")
        assert self._since(scan, later) == {"z"}

    def test_a_clock_that_was_set_back_hides_nothing(
        self, scan: ZoneScan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = time.time_ns
        monkeypatch.setattr(module.time, "time_ns", lambda: real() + 3600 * 10**9)
        mark = scan.mark()
        monkeypatch.setattr(module.time, "time_ns", real)
        (tmp_path / "a" / "b" / "old").write_text("x")
        assert "a/b/old" in self._since(scan, mark)

    def test_a_flood_hides_nothing(self, scan: ZoneScan, tmp_path: Path) -> None:
        """More events than the kernel keeps."""
        mark = self._later(scan)
        flood = "for n in range(20000): open(f'a/b/{n % 100}', 'w').close()"
        subprocess.run([sys.executable, "-I", "-S", "-c", flood], cwd=tmp_path, check=True)
        (tmp_path / "top").write_text("x")
        _make(tmp_path, "late/r/.env")
        assert self._since(scan, mark) >= {"top", "a/b/99", "late/r/.env"}
        assert "late/r/.env" in _found(scan)
        _make(tmp_path, "late/r/s/id_rsa")
        scan.refresh()
        assert "late/r/s/id_rsa" in _found(scan)

    @pytest.mark.parametrize("target", ["a/b/old", "sub/.git/config", "node_modules/n/lib/index.js"])
    @pytest.mark.parametrize(
        "how_it_ends",
        [
            *("os.unlink('plain')", "os.rename('plain', 'a/other name')", "os.rename('top', 'plain')", "pass"),
            "os.rename('top', 'plain'); file.write('x'); file.flush()",
            "os.unlink('plain'); file.write('x'); file.flush()",
        ],
    )
    def test_what_is_written_through_another_link(
        self, scan: ZoneScan, tmp_path: Path, target: str, how_it_ends: str
    ) -> None:
        mark = self._later(scan)
        self._run(tmp_path, f"os.link('{target}', 'plain'); file = open('plain', 'a')", "file.write('1')", how_it_ends)
        assert target in self._since(scan, mark)

    def test_what_is_written_through_a_link_of_long_ago(self, scan: ZoneScan, tmp_path: Path) -> None:
        os.link(tmp_path / "sub/.git/config", tmp_path / "plain")
        mark = self._later(scan)
        with (tmp_path / "plain").open("a") as file:
            (tmp_path / "top").rename(tmp_path / "plain")
            scan.refresh()
            file.write("x")
        assert "sub/.git/config" in self._since(scan, mark)

    def test_what_is_written_through_a_link_in_a_directory_that_is_gone(self, scan: ZoneScan, tmp_path: Path) -> None:
        mark = self._later(scan)
        link = "os.mkdir('d'); os.link('a/b/old', 'd/x')"
        self._run(tmp_path, link, "open('d/x', 'w').close()", "os.unlink('d/x'); os.rmdir('d')")
        assert "a/b/old" in self._since(scan, mark)

    def _run(self, where: Path, *lines: str) -> None:
        names: dict[str, object] = {"os": os}
        with contextlib.chdir(where):
            exec("; ".join(lines), names)
            names.clear()  # whoever still has a file open closes it

    def test_placeholders_do_not_make_it_look_at_everything(
        self, scan: ZoneScan, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if how != "watched":
            pytest.skip("its times are looked at")
        scan.placeholders = frozenset({("HEAD",)})
        mark = scan.mark()
        (tmp_path / "HEAD").mkdir()
        scan.refresh()
        (tmp_path / "HEAD").rmdir()
        monkeypatch.setattr(module, "changed_in", lambda *_: pytest.fail("looked at by its times"))
        assert self._since(scan, mark) == {"HEAD"}

    def test_of_what_was_there_before_nothing_is_told_twice(self, scan: ZoneScan, tmp_path: Path) -> None:
        mark = scan.mark()
        _make(tmp_path, "a/first", "made/there")
        os.rename(tmp_path / "top", tmp_path / "moved")
        assert self._since(scan, mark) >= {"a/first", "made/there", "moved"}
        changed = (tmp_path / "moved").stat().st_ctime_ns
        while time.clock_gettime_ns(changes_module.CLOCK_OF_FILES) <= changed:
            time.sleep(0)
        mark = scan.mark()
        assert not {"a/first", "made/there", "moved"} & self._since(scan, mark)
        (tmp_path / "moved").unlink()
        assert not {"a/first", "made/there"} & self._since(scan, mark)

    def test_since_a_moment_of_the_clock(self, scan: ZoneScan, tmp_path: Path) -> None:
        """Also one before this process began to look."""
        moment = time.time_ns()
        _make(tmp_path, "a/b/c/new", "fresh/er/x")
        (tmp_path / "sub/.git/config").write_text("x")
        os.link(tmp_path / "a/b/old", tmp_path / "plain")
        for one in (scan, ZoneScan(str(tmp_path))):
            found = self._since(one, one.mark_at(moment))
            assert found == {"a/b/c/new", "fresh/er/x", "sub/.git/config", "a/b/old", "plain"}
        time.sleep(0.03)
        assert self._since(scan, scan.mark_at(time.time_ns())) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("how", ["by its times"], indirect=True)
def test_a_directory_that_was_closed_meanwhile_is_told(tmp_path: Path, how: str) -> None:
    """Root could list it, so this is done as another user, in a process where `how` changes nothing."""
    script = (
        "import os, sys, time; from pathlib import Path; from golem_forge.sandbox.walls import scan as module\n"
        "os.setuid(12345)\n"
        "for mode in (0, 0o111, 0o333, 0o444):\n"
        "    zone = Path(sys.argv[1], oct(mode)); zone.mkdir()\n"
        "    for one in ('build', 'before', 'open'): (zone / one).mkdir(); (zone / one / 'x').touch()\n"
        "    (zone / 'before').chmod(0o111); time.sleep(0.1); scan = module.ZoneScan(str(zone)); scan.refresh()\n"
        "    mark, moment = scan.mark(), time.time_ns()\n"
        "    (zone / 'build/x').write_text('x'); (zone / 'build').chmod(mode)\n"
        "    (zone / 'new').mkdir(); (zone / 'new/y').touch(); (zone / 'new').chmod(mode)\n"
        "    expected = {('build',), ('new',)}\n"
        "    assert scan.changed_since(mark).unlisted == expected, oct(mode)\n"
        "    assert module.ZoneScan(str(zone)).changed_since(scan.mark_at(moment)).unlisted == expected, oct(mode)\n"
        "    assert scan.changed_since(scan.mark()).unlisted == set(), oct(mode)\n"
    )
    place = Path("/tmp") / f"closed-{os.getpid()}-{tmp_path.name}"
    place.mkdir()
    os.chown(place, 12345, 12345)
    try:
        done = subprocess.run([sys.executable, "-c", script, str(place)], capture_output=True, text=True)
    finally:
        shutil.rmtree(place)

    assert done.returncode == 0, done.stderr


class TestMoreThanCanBeLookedAt:
    """What was not looked at is found as a directory that cannot be listed, which walls mask."""

    def _unlisted(self, scan: ZoneScan) -> set[str]:
        return {"/".join(one.parts) for one in scan.findings if one.unlisted}

    def test_too_many_entries(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_ENTRIES", 100)
        _make(tmp_path, *(f"node_modules/a/{number}" for number in range(120)), "node_modules/a/b/c/d/.env")
        assert self._unlisted(_scanned(tmp_path)) == {"node_modules/a/b"}

    def test_a_flood_of_files_in_one_directory_keeps_no_other_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_ENTRIES", 2500)
        _make(tmp_path, *(f"node_modules/a/{number}" for number in range(3000)), "node_modules/a/b/c/d/.env")
        scan = _scanned(tmp_path)
        assert scan.stopped_at is None and _found(scan) == {"node_modules/a/b/c/d/.env"}

    def test_too_deep(self, tmp_path: Path) -> None:
        chain = "/".join("a" * module.MOST_DEPTH)
        _make(tmp_path, f"{chain}/b/c/d/.env", f"{chain}/.env")
        scan = _scanned(tmp_path)
        assert _found(scan) == {f"{chain}/b", f"{chain}/.env"} and self._unlisted(scan) == {f"{chain}/b"}
        assert not scan.changed_since(scan.mark()).complete and not scan.complete(())
        (tmp_path / chain / "b").rename(tmp_path / "b")
        scan.refresh()
        assert _found(scan) == {f"{chain}/.env", "b/c/d/.env"} and scan.complete(())

    def test_too_many_names_in_one_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(directories, "MOST_NAMES", 50)
        _make(tmp_path, "many/.env", "few/.env")
        scan = _scanned(tmp_path)
        mark = scan.mark()
        _make(tmp_path, *(f"many/{number}" for number in range(60)))
        assert scan.changed_since(mark).unlisted == {("many",)}
        assert _found(scan) == {"many", "few/.env"}

    def test_too_much_for_one_look_goes_on_at_the_next(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_LONGEST_LOOK_S", 0.0)
        monkeypatch.setattr(module, "_FIRST_LOOK_S", 0.0)
        _make(tmp_path, "a/.env", "b/c/.env", "node_modules/x/y/.env")
        scan = _scanned(tmp_path)
        assert self._unlisted(scan) & {"a", "b", "node_modules"} and not scan.complete(())
        time.sleep(0.15)
        for _ in range(20):
            scan.refresh()
        assert _found(scan) == {"a/.env", "b/c/.env", "node_modules/x/y/.env"} and scan.complete(())
        _make(tmp_path, "a/id_rsa", "b/c/id_rsa", "node_modules/x/y/id_rsa")
        scan.refresh()
        hidden = self._unlisted(scan)
        for name in ("a", "b/c", "node_modules/x/y"):
            assert name in hidden or f"{name}/id_rsa" in _found(scan), "looked at, or hidden"
        assert hidden

    def test_a_glance_leaves_what_it_has_no_time_for(
        self, settled: ZoneScan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_GLANCE_S", 0.0)
        monkeypatch.setattr(module, "_PAUSE", 0)
        _make(tmp_path, "a/.env", "c/.env", "new/er/.env")
        settled.refresh_briefly()
        assert self._unlisted(settled) == set()
        time.sleep(0.03)
        for _ in range(20):
            settled.refresh_briefly()
        assert _found(settled) == {"a/.env", "c/.env", "new/er/.env"}
        _make(tmp_path, "a/id_rsa", "c/id_rsa", "new/er/id_rsa")
        settled.refresh_briefly()
        settled.refresh()  # has the time
        assert {"a/id_rsa", "c/id_rsa", "new/er/id_rsa"} <= _found(settled)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_a_socket_that_nobody_has_bound_any_more_is_none(tmp_path: Path, kind: socket.SocketKind) -> None:
    _make(tmp_path, "a/x")
    scan = ZoneScan(str(tmp_path))
    here = os.open(tmp_path / "a", os.O_PATH)
    with socket.socket(socket.AF_UNIX, kind) as bound:
        bound.bind(f"/proc/self/fd/{here}/s")
        time.sleep(0.03)
        scan.refresh()
        assert _found(scan) == {"a/s"}, "bound, though it does not listen"
        if kind != socket.SOCK_DGRAM:
            bound.listen()
            bound.setblocking(False)
            scan.refresh()
            with pytest.raises(BlockingIOError):  # who listens is not disturbed
                bound.accept()
        scan.refresh()
        assert _found(scan) == {"a/s"}
    os.close(here)
    scan.refresh()
    assert _found(scan) == set()


def test_directories_that_come_and_go_quickly_hide_nothing(tmp_path: Path) -> None:
    scan = _scanned(tmp_path)
    script = (
        "import os\n"
        "for n in range(300):\n"
        "    os.makedirs(f'd{n % 7}/e/f'); os.rename(f'd{n % 7}', f'k{n}'); open(f'k{n}/e/f/.env', 'w').close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) as child:
        while child.poll() is None:
            scan.refresh()
    scan.refresh()
    assert _found(scan) == {f"k{number}/e/f/.env" for number in range(300)}
    _make(tmp_path, "k5/e/f/id_rsa")
    scan.refresh()
    assert "k5/e/f/id_rsa" in _found(scan)


def test_what_comes_and_goes_leaves_the_number_it_found(settled: ZoneScan, tmp_path: Path) -> None:
    """Plans are kept by it: a placeholder stands there while a command runs, and plain files come with every one."""
    before, names = settled.version, settled.names_version
    (tmp_path / ".git").mkdir()
    _make(tmp_path, "a/plain.py")
    settled.refresh()
    assert settled.version == before and settled.names_version != names
    _make(tmp_path, "a/.git/HEAD", "a/.git/hooks/")
    settled.refresh()
    assert settled.version != before
    (tmp_path / "a" / ".git" / "HEAD").unlink()
    (tmp_path / "a" / ".git" / "hooks").rmdir()
    settled.refresh()
    assert settled.version == before
