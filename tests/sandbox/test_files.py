"""Reading, listing, describing, deleting: kinds, limits and texts (S13, S14)."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deadlines import within
from tests.sandbox.conftest import open_zone_of
from tests.tables import table

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import Opener
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import MAX_DEPTH, FileKind


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{here}/{path.name}")
    listener.close()
    os.close(here)


@pytest.mark.parametrize(("make", "word"), [(_fifo, "fifo"), (_device, "device"), (_socket, "socket")])
def test_s13_special_files_are_refused_at_once(
    sandbox: Sandbox, workspace: Path, make: Callable[[Path], None], word: str, do: Callable[..., object]
) -> None:
    make(workspace / "odd")
    for operation in ("read", "write", "delete"):
        with within(1), pytest.raises(SandboxError) as caught:
            do(operation, sandbox, "odd")
        assert caught.value.code == "NOT_A_FILE"
        assert caught.value.message == f"'/workspace/odd' is not a regular file ({word})."
    assert sandbox.target("odd", Verb.READ).kind == "other"
    with pytest.raises(SandboxError, match="'/workspace/odd' is not a directory"):
        do("list", sandbox, "odd")


@table(
    ("operation", "path", "code", "text"),
    [
        ("read", "gone", "NOT_FOUND", "File not found: /workspace/gone"),
        ("delete", "gone", "NOT_FOUND", "File not found: /workspace/gone"),
        ("list", "gone", "NOT_FOUND", "File not found: /workspace/gone"),
        ("info", "gone/deep", "NOT_FOUND", "File not found: /workspace/gone/deep"),
        ("read", "dir", "IS_A_DIRECTORY", "'/workspace/dir' is a directory."),
        ("write", "dir", "IS_A_DIRECTORY", "'/workspace/dir' is a directory."),
        ("delete", "dir", "IS_A_DIRECTORY", "'/workspace/dir' is a directory."),
        ("write", "/workspace", "IS_A_DIRECTORY", "'/workspace' is a directory."),
        ("delete", "/workspace", "IS_A_DIRECTORY", "'/workspace' is a directory."),
        ("list", "file", "NOT_A_DIRECTORY", "'/workspace/file' is not a directory."),
        ("read", "file/x", "NOT_A_DIRECTORY", "'/workspace/file' is not a directory."),
        ("write", "file/x/y", "NOT_A_DIRECTORY", "'/workspace/file' is not a directory."),
        ("read", "a\0b", "INVALID_PATH", "Invalid path 'a\\x00b': contains NUL"),
        ("write", "a\nb", "INVALID_PATH", "Invalid path '/workspace/a\\x0ab': control character in a new name"),
        ("write", "x\x85/b", "INVALID_PATH", "Invalid path '/workspace/x\\x85/b': control character in a new name"),
        ("read", "a\nb", "NOT_FOUND", "File not found: /workspace/a\\x0ab"),
    ],
)
def test_s14_texts_are_exact_and_virtual(
    sandbox: Sandbox, workspace: Path, operation: str, path: str, code: str, text: str, do: Callable[..., object]
) -> None:
    (workspace / "dir").mkdir(exist_ok=True)
    (workspace / "file").write_text("x")
    for spelling in (path, f"{workspace}/{path}") if not path.startswith("/") else (path,):
        with pytest.raises(SandboxError) as caught:
            do(operation, sandbox, spelling)
        error = caught.value
        assert error.code == code
        assert str(workspace.parent) not in str(error) + error.path + repr(error)
        assert error.__cause__ is None
        if spelling == path:
            assert error.message == text


def test_s14_mode_000_as_a_plain_user(plain_user: Callable[[Callable[[Path], object]], object], opener: Opener) -> None:
    def attempt(place: Path) -> object:
        zone = place / "zone"
        (zone / "closed").mkdir(parents=True)
        (zone / "closed/in").write_text("x")
        (zone / "secret").write_text("x")
        (zone / "passage").mkdir()
        (zone / "passage/in").write_text("through")
        (zone / "passage").chmod(0o311)
        (zone / "secret").chmod(0)
        (zone / "closed").chmod(0)
        sandbox = open_zone_of(place, opener)
        answers: list[object] = [sandbox.target("secret", Verb.READ).exists]
        for path, verb in (("secret", Verb.READ), ("closed/in", Verb.READ), ("closed/new", Verb.WRITE)):
            try:
                files.read_bytes(sandbox.target(path, verb))
            except SandboxError as error:
                answers.append((error.code, error.message))
        try:
            files.list_dir(sandbox.target("closed", Verb.READ))
        except SandboxError as error:
            answers.append((error.code, error.message))
        files.write_atomic(sandbox.target("passage/new", Verb.WRITE), b"x")
        answers.append(files.read_bytes(sandbox.target("passage/in", Verb.READ)).decode())
        files.write_atomic(sandbox.target("secret", Verb.WRITE), b"y")
        answers.append(oct((zone / "secret").stat().st_mode & 0o777))
        return answers

    denied = [
        ("PERMISSION_DENIED", f"The system refused access to '/w/{path}'.")
        for path in ("secret", "closed/in", "closed/new", "closed")
    ]
    assert plain_user(attempt) == [True, *map(list, denied), "through", "0o0"]


def test_the_whole_content_within_the_limit(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"x" * 100)
    target = sandbox.target("a", Verb.READ)
    assert files.read_bytes(target, 100) == files.read_bytes(target) == b"x" * 100
    with pytest.raises(SandboxError) as caught:
        files.read_bytes(target, 99)
    assert caught.value.code == "TOO_LARGE"
    assert caught.value.message.startswith("'/workspace/a' is 100 bytes; the limit is 99. ")
    with (workspace / "a").open("ab") as grown:
        grown.write(b"y")
    with pytest.raises(SandboxError, match="is 101 bytes"):
        files.read_bytes(target, 100)


def test_a_sparse_file_over_64_mib_is_refused_unread(sandbox: Sandbox, workspace: Path) -> None:
    with (workspace / "big").open("wb") as big:
        big.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(SandboxError, match="is 67108865 bytes; the limit is 67108864"):
        files.read_bytes(sandbox.target("big", Verb.READ))


def test_a_listing_has_kinds_and_safe_names(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    (workspace / "dir").mkdir()
    (workspace / "link").symlink_to("/etc")
    os.mkfifo(workspace / "pipe")
    (workspace / "new\nline").write_text("x")
    (workspace / "é\u0085").write_text("x")
    os.close(os.open(os.fsencode(workspace) + b"/bad\xff", os.O_CREAT | os.O_WRONLY))
    listed = files.list_dir(sandbox.target("/workspace", Verb.READ))
    assert [(entry.name, entry.kind.value, entry.addressable) for entry in listed] == [
        ("bad\\xff", "file", False),
        ("dir", "directory", True),
        ("file", "file", True),
        ("link", "link", True),
        ("new\\x0aline", "file", False),
        ("pipe", "other", True),
        ("é\\xc2\\x85", "file", False),
    ]
    assert files.list_dir(sandbox.target("/workspace", Verb.READ)) == listed
    for verb in (Verb.READ, Verb.WRITE, Verb.DELETE):
        with pytest.raises(SandboxError, match="control character in the name"):
            sandbox.target("new\nline", verb)
    with pytest.raises(SandboxError, match="not UTF-8"):
        sandbox.target("bad\udcff", Verb.READ)


def test_a_listing_over_the_limit_is_too_large(sandbox: Sandbox, workspace: Path) -> None:
    for number in range(13):
        (workspace / str(number)).touch()
    target = sandbox.target(".", Verb.READ)
    assert len(files.list_dir(target, 13)) == 13
    with pytest.raises(SandboxError) as caught:
        files.list_dir(target, 10)
    assert caught.value.code == "TOO_LARGE"
    assert caught.value.message.startswith("'/workspace' is 13 entries; the limit is 10. ")
    assert files.LISTING_LIMIT == 10_000


@pytest.mark.parametrize("through_link", [False, True])
def test_64_levels_and_no_more(sandbox: Sandbox, workspace: Path, through_link: bool) -> None:
    deepest = "/".join(["d"] * MAX_DEPTH)
    (workspace / deepest).mkdir(parents=True)
    assert sandbox.target(deepest, Verb.READ).exists
    (workspace / "link").symlink_to(deepest)
    path = "link/x" if through_link else f"{deepest}/x"
    for verb in (Verb.READ, Verb.WRITE):
        with pytest.raises(SandboxError) as caught:
            sandbox.target(path, verb)
        assert caught.value.code == "TOO_LARGE" and "is 65 levels deep; the limit is 64." in caught.value.message


def test_info_is_of_the_judged_thing(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"12345")
    (workspace / "a").chmod(0o640)
    os.utime(workspace / "a", (1_000_000_000, 1_000_000_000))
    info = files.file_info(sandbox.target("a", Verb.READ))
    assert info == files.FileInfo(FileKind.FILE, 5, 1_000_000_000.0, 0o640)


def test_delete_takes_the_judged_entry_only(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    os.link(workspace / "a", workspace / "twin")
    files.delete(sandbox.target("a", Verb.DELETE))
    assert os.listdir(workspace) == ["twin"]
    with pytest.raises(ValueError, match="not judged for delete"):
        files.delete(sandbox.target("twin", Verb.WRITE))
    with pytest.raises(ValueError, match="not judged for write"):
        files.write_atomic(sandbox.target("twin", Verb.DELETE), b"")
