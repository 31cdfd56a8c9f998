"""A folder is its bytes: nothing is followed, nothing is endless, and one digest names exactly what was read."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from golem_forge.core.json import canonical
from golem_forge.storage import content_store as tree_module
from golem_forge.storage.content_store import content_digest
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.folder import (
    FOLDER_LIMITS,
    FileFact,
    FolderFiles,
    Validity,
    find_entrypoint,
    read_folder,
    try_folder,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "greet"
    (path / "lib").mkdir(parents=True)
    (path / "tool.yaml").write_bytes(b"name: greet\n")
    (path / "greet.sh").write_bytes(b"#!/bin/sh\n")
    (path / "greet.sh").chmod(0o700)
    (path / "lib" / "words.txt").write_bytes(b"hello\n")
    return path


def refusal(folder: Path) -> Unusable:
    with pytest.raises(Unusable) as caught:
        read_folder(folder)
    return caught.value


def test_every_file_is_read_with_its_exec_bit(folder: Path) -> None:
    (folder / "empty").mkdir()
    found = read_folder(folder)
    assert found.files == {"greet.sh": b"#!/bin/sh\n", "lib/words.txt": b"hello\n", "tool.yaml": b"name: greet\n"}
    assert found.executable == {"greet.sh"}
    assert found.folders == {"lib", "empty"}
    assert found.facts[0] == FileFact("greet.sh", True, 10, hashlib.sha256(b"#!/bin/sh\n").hexdigest())
    assert [fact.path for fact in found.facts] == ["greet.sh", "lib/words.txt", "tool.yaml"]


def test_the_digest_is_the_stores_and_is_over_path_exec_bit_size_and_hash(folder: Path) -> None:
    found = read_folder(folder)
    rows = [[fact.path, fact.executable, fact.size, fact.sha256] for fact in found.facts]
    assert found.digest == "sha256:" + hashlib.sha256(canonical(rows).encode()).hexdigest()
    assert found.digest == content_digest(found.files, found.executable)
    (folder / "greet.sh").chmod(0o600)
    assert read_folder(folder).digest != found.digest
    (folder / "greet.sh").chmod(0o500)  # other bits are no part of it
    (folder / "empty").mkdir()
    assert read_folder(folder).digest == found.digest
    (folder / "lib" / "words.txt").rename(folder / "words.txt")
    assert read_folder(folder).digest != found.digest


CLUTTER = (
    ".greet.sh.swp",
    "words.swp",
    "greet.sh~",
    "#greet.sh#",
    ".#greet.sh",
    ".DS_Store",
    "._greet.sh",
    "Thumbs.db",
)
CLUTTER_FOLDERS = ("__pycache__", ".git", ".hg", ".svn", ".idea", ".vscode", ".mypy_cache", ".pytest_cache", "__MACOSX")


@pytest.mark.parametrize("where", ["", "lib/"])
def test_what_editors_and_version_control_leave_is_no_part_of_a_tool(folder: Path, where: str) -> None:
    """Whatever stands behind such a name: files without number, links, what cannot be read."""
    before = read_folder(folder)
    for name in CLUTTER:
        (folder / where / name).write_bytes(b"#!/bin/sh\nevil\n")
        (folder / where / name).chmod(0o700)
    for name in CLUTTER_FOLDERS:
        (folder / where / name / "deep").mkdir(parents=True)
        (folder / where / name / "deep" / "words.txt").write_bytes(b"evil\n")
    for number in range(FOLDER_LIMITS.files + 1):
        (folder / where / ".git" / str(number)).touch()
    (folder / where / ".#lock").symlink_to("somebody@somewhere.1")
    found = read_folder(folder)
    assert (found.digest, found.files, found.folders) == (before.digest, before.files, before.folders)
    for name in ("greet.swf", "git", ".gitignore", "pycache", "helper.pyc", "a~b", "#1"):
        (folder / where / name).write_bytes(b"")
        assert read_folder(folder).digest != before.digest, name
        (folder / where / name).unlink()


@pytest.mark.parametrize("name", ["greet.sh~", ".greet.swp", ".git", "__pycache__"])
def test_no_program_has_a_name_that_is_passed_over(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"#!/bin/sh\n")
    (folder / name).chmod(0o700)
    with pytest.raises(Unusable, match="has a name that Forge ignores") as caught:
        find_entrypoint(name, read_folder(folder))
    assert caught.value.diagnostic_code is DiagnosticCode.ENTRYPOINT_INVALID


def test_files_that_count_are_not_lost_among_those_that_do_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "_MOST_IGNORED", 50)
    for number in range(2 * FOLDER_LIMITS.files + 60):
        (folder / f"{number}~").touch()
    assert refusal(folder).diagnostic_code is DiagnosticCode.TOO_LARGE


@pytest.mark.parametrize("where", ["", "lib/"])
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("file link", "is a symbolic link"),
        ("folder link", "is a symbolic link"),
        ("dangling link", "is a symbolic link"),
        ("pipe", "is a named pipe"),
        ("socket", "is a socket"),
    ],
)
def test_links_pipes_and_sockets_are_refused_at_any_depth(folder: Path, where: str, what: str, text: str) -> None:
    odd = folder / where / "odd"
    if what == "pipe":
        os.mkfifo(odd)
    elif what == "socket":
        before = os.getcwd()
        os.chdir(odd.parent)  # a socket's address has room for a short path only
        try:
            socket.socket(socket.AF_UNIX).bind("odd")
        finally:
            os.chdir(before)
    else:
        odd.symlink_to({"file link": "/etc/hostname", "folder link": "/etc", "dangling link": "nowhere"}[what])
    error = refusal(folder)
    assert error.diagnostic_code is DiagnosticCode.SYMLINK
    assert error.message == f"{where}odd: {text}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_refused_and_not_opened(folder: Path) -> None:
    try:
        os.mknod(folder / "odd", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine lets nobody make devices")
    assert refusal(folder).message == "odd: is a device"


def test_a_folder_that_is_itself_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(folder)
    error = refusal(tmp_path / "other")
    assert (error.diagnostic_code, error.message) == (DiagnosticCode.SYMLINK, "the folder is a symbolic link")


@pytest.mark.parametrize("swapped", ["words.txt", "lib"])
def test_a_name_swapped_for_a_link_after_it_was_looked_at_is_not_followed(
    folder: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = folder.parent / "elsewhere"
    secret.mkdir()
    (secret / "words.txt").write_bytes(b"CANARY")
    real = os.stat

    def stat_then_swap(name: str, **options: object) -> os.stat_result:
        status = real(name, **options)  # type: ignore[arg-type]
        if name == swapped:
            target = folder / "lib" / "words.txt" if swapped == "words.txt" else folder / "lib"
            target.rename(folder.parent / "moved")
            target.symlink_to(secret / "words.txt" if swapped == "words.txt" else secret)
        return status

    monkeypatch.setattr(tree_module.os, "stat", stat_then_swap)
    found = try_folder(folder).found
    monkeypatch.undo()
    assert isinstance(found, Unusable)
    assert found.diagnostic_code in (DiagnosticCode.SYMLINK, DiagnosticCode.UNREADABLE)


def test_two_hundred_files_are_read_and_one_more_is_too_many(folder: Path) -> None:
    for number in range(FOLDER_LIMITS.files - 3):
        (folder / "lib" / f"{number}.txt").touch()
    assert len(read_folder(folder).files) == 200
    (folder / "more").touch()
    error = refusal(folder)
    assert (error.diagnostic_code, error.message) == (DiagnosticCode.TOO_LARGE, "has more than 200 files")


def test_a_crowd_of_files_or_folders_and_a_deep_nest_end_early(folder: Path) -> None:
    for number in range(700):
        (folder / "lib" / f"{number}").touch()
    assert refusal(folder).diagnostic_code is DiagnosticCode.TOO_LARGE
    for file in (folder / "lib").iterdir():
        file.unlink()
    for number in range(FOLDER_LIMITS.files):
        (folder / "lib" / f"{number}").mkdir()
    assert refusal(folder).message == "has more than 200 folders"
    for made in (folder / "lib").iterdir():
        made.rmdir()
    (folder / "lib" / "/".join(["d"] * 40)).mkdir(parents=True)
    assert "nested deeper than" in refusal(folder).message


def test_fifty_mebibytes_are_read_and_one_byte_more_is_too_much(folder: Path) -> None:
    have = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    with open(folder / "big", "wb") as file:
        file.truncate(FOLDER_LIMITS.total_bytes - have)
    assert sum(map(len, read_folder(folder).files.values())) == 50 << 20
    with open(folder / "one", "wb") as file:
        file.write(b"x")
    error = refusal(folder)
    assert (error.diagnostic_code, error.message) == (DiagnosticCode.TOO_LARGE, "has more than 50 MiB of files")


@pytest.mark.parametrize("name", [b"a\x1b[31m", b"a\nb", b"a\tb", b"\xff\xfe", "a\u202eb".encode(), b"lib/a\x07"])
def test_a_name_that_cannot_be_shown_is_refused_and_told_visibly(folder: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(folder), name), "wb"):
        pass
    error = refusal(folder)
    assert error.diagnostic_code is DiagnosticCode.UNREADABLE
    assert "the name has characters that cannot be shown" in error.message
    assert error.message.isascii() and error.message.isprintable()


def test_what_may_not_be_read_is_named_without_the_hosts_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # nothing is closed to root
        real = os.open

        def refuse(path: str, *rest: object, **options: object) -> int:
            if path == "words.txt":
                raise PermissionError(13, "no", str(folder / "lib" / "words.txt"))
            return real(path, *rest, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(tree_module.os, "open", refuse)
    (folder / "lib" / "words.txt").chmod(0)
    reading = try_folder(folder)
    assert isinstance(reading.found, Unusable)
    assert reading.found.diagnostic_code is DiagnosticCode.UNREADABLE
    assert reading.found.message == "lib/words.txt: cannot be read (Permission denied)"
    assert reading.validity is Validity.NOT


def test_a_missing_folder_and_a_file_are_unreadable(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").diagnostic_code is DiagnosticCode.UNREADABLE
    (tmp_path / "file").touch()
    error = refusal(tmp_path / "file")
    assert error.diagnostic_code is DiagnosticCode.UNREADABLE
    assert str(tmp_path) not in error.message


def test_what_was_changed_this_moment_lasts_for_a_moment(folder: Path) -> None:
    (folder / "lib" / "words.txt").write_bytes(b"now\n")
    assert try_folder(folder).validity is Validity.MOMENT


def test_equal_files_are_equal_folders() -> None:
    one = FolderFiles({"a": b"1"}, frozenset())
    assert one == FolderFiles({"a": b"1"}, frozenset(), frozenset({"empty"}))
    assert one != FolderFiles({"a": b"1"}, frozenset({"a"}))
