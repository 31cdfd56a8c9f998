"""list_files, file_exists, file_info: T8, T10 and the rules behind them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets import TOOLKIT, FilesystemToolset


async def test_t8_sorted_by_code_point_with_suffixes(call: Any, workspace: Path) -> None:
    for name in ("b.txt", "Z", "ä", ".hidden"):
        (workspace / name).touch()
    (workspace / "a").mkdir()
    (workspace / "link").symlink_to("a")
    os.mkfifo(workspace / "pipe")
    os.close(os.open(os.fsencode(workspace) + b"/bad\xff\n", os.O_CREAT))
    result = await call("list_files")
    names = [".hidden", "Z", "a/", "b.txt", "bad\\xff\\x0a", "link@", "pipe?", "ä"]
    assert result.value == {"kind": "file_list", "path": "/workspace", "files": names, "count": 8, "truncated": False}
    assert result.text == "\n".join([*names, "8 entries in /workspace"])


@pytest.mark.parametrize(("names", "text"), [(["x"], "x\n1 entry in /workspace/d"), ([], "0 entries in /workspace/d")])
async def test_t8_one_entry_and_none(call: Any, workspace: Path, names: list[str], text: str) -> None:
    (workspace / "d").mkdir()
    for name in names:
        (workspace / "d" / name).touch()
    assert (await call("list_files", path="d")).text == text


async def test_t8_the_root_lists_zones(call: Any) -> None:
    result = await call("list_files", path="/")
    assert result.value["files"] == ["docs/ (ro)", "scratch/ (rw)", "workspace/ (rw)"]
    assert result.text == "docs/ (ro)\nscratch/ (rw)\nworkspace/ (rw)\n3 entries in /"


async def test_over_a_thousand_entries(call: Any, workspace: Path) -> None:
    for number in range(1003):
        (workspace / f"{number:04}").touch()
    result = await call("list_files")
    assert len(result.value["files"]) == 1000
    assert (result.value["count"], result.value["truncated"]) == (1003, True)
    assert result.text.endswith("\n0999\n[… 3 more; use list_dir]\n1003 entries in /workspace")


@pytest.mark.parametrize(
    ("path", "code"), [("missing", "NOT_FOUND"), ("a.txt", "NOT_A_DIRECTORY"), ("/nowhere", "ZONE_ACCESS_DENIED")]
)
async def test_what_cannot_be_listed(call: Any, workspace: Path, path: str, code: str) -> None:
    (workspace / "a.txt").touch()
    with pytest.raises(SandboxError) as failed:
        await call("list_files", path=path)
    assert failed.value.code == code


async def test_t10_exists(call: Any, workspace: Path) -> None:
    (workspace / "a.txt").touch()
    (workspace / "good").symlink_to("a.txt")
    (workspace / "dangling").symlink_to("gone")
    os.mkfifo(workspace / "pipe")
    seen = {}
    for name in ("a.txt", ".", "/", "good", "dangling", "pipe", "missing", "a.txt/below"):
        result = await call("file_exists", path=name)
        assert result.kind == "json"
        seen[name] = tuple(result.value["data"].values())
    assert seen == {
        "a.txt": ("/workspace/a.txt", True, "file"),
        ".": ("/workspace", True, "directory"),
        "/": ("/", True, "directory"),
        "good": ("/workspace/a.txt", True, "file"),
        "dangling": ("/workspace/dangling", True, "link"),
        "pipe": ("/workspace/pipe", True, "other"),
        "missing": ("/workspace/missing", False, None),
        "a.txt/below": ("/workspace/a.txt/below", False, None),
    }


@table("tool", ["file_exists", "file_info", "read_file", "list_files"])
async def test_t10_a_path_it_may_not_look_at_is_an_error(call: Any, workspace: Path, tool: str) -> None:
    (workspace / tool).symlink_to("/etc")
    for path, code in (("/../x", "INVALID_PATH"), ("/etc", "ZONE_ACCESS_DENIED"), (tool, "SYMLINK_ESCAPE")):
        with pytest.raises(SandboxError) as failed:
            await call(tool, path=path)
        assert failed.value.code == code


async def test_info_of_a_text(call: Any, workspace: Path) -> None:
    file = workspace / "a.py"
    file.write_bytes(b"a\r\nb")
    file.chmod(0o640)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    result = await call("file_info", path="a.py")
    assert result.kind == "json"
    assert result.value["data"] == {
        "path": "/workspace/a.py",
        "type": "file",
        "size": 4,
        "modified": "2023-11-14T22:13:20Z",
        "mode": "0640",
        "mime": "text/x-python",
        "binary": False,
        "lines": 2,
        "sha256": hashlib.sha256(b"a\r\nb").hexdigest(),
    }


@table(
    ("name", "data", "facts"),
    [
        ("x.png", b"\x89PNG\0", ("image/png", True, None)),
        ("x.txt", b"\0", ("application/octet-stream", True, None)),
        ("noending", b"words", ("text/plain", False, 1)),
        ("a.tar.gz", b"words", ("application/gzip", True, None)),
        ("data:text,x.md", b"", ("text/markdown", False, 0)),
        ("x.yaml", b"a: 1\n", ("application/yaml", False, 1)),
    ],
)
async def test_info_tells_type_and_nature(call: Any, workspace: Path, name: str, data: bytes, facts: Any) -> None:
    (workspace / name).write_bytes(data)
    info = (await call("file_info", path=name)).value["data"]
    assert (info["mime"], info["binary"], info["lines"]) == facts
    assert info["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("size", "counted"), [(10 * 1024 * 1024, True), (10 * 1024 * 1024 + 1, False), (1 << 33, False)]
)
async def test_info_counts_and_hashes_up_to_10_mib(call: Any, workspace: Path, size: int, counted: bool) -> None:
    with open(workspace / "big.txt", "wb") as file:
        file.write(b"a\n" * 5000)
        file.truncate(size)
    info = (await call("file_info", path="big.txt")).value["data"]
    assert (info["size"], info["binary"]) == (size, False)
    assert (info["sha256"] is not None, info["lines"] is not None) == (counted, counted)


async def test_info_of_what_is_no_file(call: Any, workspace: Path) -> None:
    (workspace / "dangling").symlink_to("gone")
    types = [(await call("file_info", path=path)).value["data"]["type"] for path in (".", "dangling", "/")]
    assert types == ["directory", "link", "directory"]
    with pytest.raises(SandboxError, match="File not found: /workspace/missing"):
        await call("file_info", path="missing")


@table("sandbox_of", [lambda: None, lambda: Sandbox(has_block=False)])
async def test_s18_without_a_sandbox_there_is_no_file_access(sandbox_of: Any) -> None:
    ctx = ToolContext(sandbox=sandbox_of())
    for tool in FilesystemToolset().get_tools():
        more = {"content": ""} if tool.name == "write_file" else {}
        with pytest.raises(SandboxError) as failed:
            await tool.execute({"path": "a.txt", **more}, ctx)
        assert failed.value.code == "NO_SANDBOX"
    listed = await TOOLKIT["list_files"].execute({"path": "/"}, ctx)
    assert listed.text == "0 entries in /"
