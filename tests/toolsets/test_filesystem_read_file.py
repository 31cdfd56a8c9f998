"""read_file: T1-T6 and the rules behind them."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.validation import Err, Ok
from golem_forge.toolsets import TOOLKIT, create_read_file_tool, create_write_file_tool


@table(
    ("args", "text"),
    [
        ({}, "L1: a\nL2: b\nL3: c\nL4: d"),
        ({"offset": 2, "limit": 2}, "L2: b\nL3: c\n[lines 2-3 of 4; continue with offset=4]"),
        ({"offset": -1}, "L4: d\n[lines 4-4 of 4]"),
        ({"offset": -3, "limit": 1}, "L2: b\n[lines 2-2 of 4; continue with offset=3]"),
        ({"offset": -99}, "L1: a\nL2: b\nL3: c\nL4: d"),
        ({"limit": 1}, "L1: a\n[lines 1-1 of 4; continue with offset=2]"),
        ({"offset": 4, "limit": 10000}, "L4: d\n[lines 4-4 of 4]"),
    ],
)
async def test_t1_lines_and_closing_note(call: Any, workspace: Path, args: dict[str, Any], text: str) -> None:
    (workspace / "a.txt").write_text("a\nb\nc\nd\n")
    assert (await call("read_file", path="a.txt", **args)).text == text


@pytest.mark.parametrize(
    ("content", "offset", "text"),
    [
        ("a\nb\nc\nd", 99, "offset 99 is past the end (4 lines)"),
        ("a\n", 2, "offset 2 is past the end (1 line)"),
        ("", 2, "offset 2 is past the end (0 lines)"),
    ],
)
async def test_t1_offset_past_the_end(call: Any, workspace: Path, content: str, offset: int, text: str) -> None:
    (workspace / "a.txt").write_text(content)
    with pytest.raises(ToolFailed) as failed:
        await call("read_file", path="a.txt", offset=offset)
    assert failed.value.message == text
    assert failed.value.status is Status.EXECUTION_FAILED


async def test_the_value_has_every_field_and_the_raw_text(call: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(b"a\r\nb\r\nc")
    result = await call("read_file", path="a.txt", offset=2)
    assert result.value == {
        "kind": "file_content",
        "path": "/workspace/a.txt",
        "content": "b\r\nc",
        "size": 7,
        "start_line": 2,
        "end_line": 3,
        "total_lines": 3,
        "truncated": True,
        "encoding": "utf-8",
        "lossy": False,
    }


def test_t2_file_path_is_an_alias_and_not_beside_path() -> None:
    tool = TOOLKIT["read_file"]
    assert tool.validate_input({"file_path": "x"}) == Ok({"path": "x", "offset": 1, "limit": 2000})
    both = tool.validate_input({"file_path": "x", "path": "y"})
    assert isinstance(both, Err)
    assert both.message.startswith("read_file: unknown argument 'file_path'")


@table(
    ("args", "field"),
    [
        ({"offset": 0}, "offset"),
        ({"limit": 0}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"path": 7}, "path"),
    ],
)
def test_values_out_of_range_are_input_errors(args: dict[str, Any], field: str) -> None:
    checked = TOOLKIT["read_file"].validate_input({"path": "x"} | args)
    assert isinstance(checked, Err)
    assert checked.message.startswith(f"read_file: {field}: ")


def test_an_unknown_argument_names_the_nearest() -> None:
    checked = TOOLKIT["read_file"].validate_input({"path": "x", "limits": 5})
    assert checked == Err("read_file: unknown argument 'limits'; did you mean 'limit'?")


@table(
    ("data", "text"),
    [
        (b"a\nb\n", "L1: a\nL2: b"),
        (b"a\nb\n\n", "L1: a\nL2: b\nL3: "),
        (b"a\r\nb\r\n", "L1: a\nL2: b"),
        (b"a\rb\r\r\nc", "L1: a\nL2: b\nL3: \nL4: c"),
        ("a\x0bb\x0cc\u2028d\x85e\x1ef".encode(), "L1: a\x0bb\x0cc\u2028d\x85e\x1ef"),
        (b"", "(empty file)"),
        (b"\n", "L1: "),
    ],
)
async def test_t3_what_ends_a_line(call: Any, workspace: Path, data: bytes, text: str) -> None:
    (workspace / "a.txt").write_bytes(data)
    assert (await call("read_file", path="a.txt")).text == text


async def test_t4_a_single_long_line_comes_whole(call: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("x" * 5_000_000 + "\nnext\n")
    whole = await call("read_file", path="a.txt", limit=1)
    assert whole.text == "L1: " + "x" * 5_000_000 + "\n[lines 1-1 of 2; continue with offset=2]"
    both = await call("read_file", path="a.txt")
    assert both.text == "L1: " + "x" * 2000 + "…[+4998000 chars]\nL2: next"
    assert both.value["truncated"] is True
    assert len(both.value["content"]) == 5_000_006


async def test_it_stops_before_the_line_that_would_pass_30_kib(call: Any, workspace: Path) -> None:
    lines = [f"{number} {'é' * 500}" for number in range(1, 101)]
    (workspace / "a.txt").write_text("\n".join(lines))
    read: list[str] = []
    offset: int | None = 1
    while offset:
        result = await call("read_file", path="a.txt", offset=offset)
        assert len(result.text.encode()) < 32 * 1024
        read += result.value["content"].splitlines()
        assert result.value["end_line"] == len(read)
        offset = len(read) + 1 if "continue with" in result.text else None
    assert read == lines


@table(
    ("data", "text", "encoding", "lossy"),
    [
        (codecs.BOM_UTF8 + b"h\xc3\xa9", "L1: hé", "utf-8", False),
        ("hé\nü".encode("utf-16"), "L1: hé\nL2: ü", "utf-16", False),
        (codecs.BOM_UTF16_BE + "hé".encode("utf-16-be"), "L1: hé", "utf-16", False),
        (b"caf\xe9 au lait", "L1: caf\ufffd au lait", "utf-8", True),
        ("a".encode("utf-16") + b"b", "L1: a\ufffd", "utf-16", True),
    ],
)
async def test_encodings(call: Any, workspace: Path, data: bytes, text: str, encoding: str, lossy: bool) -> None:
    (workspace / "a.txt").write_bytes(data)
    result = await call("read_file", path="a.txt")
    assert (result.text, result.value["encoding"], result.value["lossy"]) == (text, encoding, lossy)
    assert result.value["size"] == len(data)


@table(
    ("name", "data", "kind"),
    [
        ("x.pdf", b"only words", "application/pdf"),
        ("X.PNG", b"", "image/png"),
        ("a.tar.gz", b"words", "application/gzip"),
        ("lib.so", b"words", "application/octet-stream"),
        ("x.txt", b"a\0b", "application/octet-stream"),
        ("x", b"\x01" * 2 + b"a" * 15, "application/octet-stream"),
        ("x.txt", codecs.BOM_UTF16_LE + b"a\0\0\0", "application/octet-stream"),
    ],
)
async def test_t5_binary_is_refused_with_a_hint(call: Any, workspace: Path, name: str, data: bytes, kind: str) -> None:
    (workspace / name).write_bytes(data)
    with pytest.raises(ToolFailed) as failed:
        await call("read_file", path=name)
    text = f"'/workspace/{name}' is binary ({kind}, {len(data)} bytes). Use file_info, or attach it."
    assert failed.value.message == text


@pytest.mark.parametrize("data", [b"\x1b[1mbold\x1b[0m" + b"a" * 40, b"\t\n\r\x0c" * 100, b"a" * 8192 + b"\0"])
async def test_few_control_characters_are_still_text(call: Any, workspace: Path, data: bytes) -> None:
    (workspace / "a.log").write_bytes(data)
    assert (await call("read_file", path="a.log")).value["content"].encode() == data


@table(
    ("path", "code", "text"),
    [
        ("x", "NOT_FOUND", "File not found: /workspace/x"),
        (".", "IS_A_DIRECTORY", "'/workspace' is a directory."),
        ("/", "IS_A_DIRECTORY", "'/' is a directory."),
        (
            "/etc/passwd",
            "ZONE_ACCESS_DENIED",
            "No access to '/etc/passwd'. Zones: /docs (ro), /scratch (rw), /workspace (rw)",
        ),
        ("../../x", "INVALID_PATH", "Invalid path '../../x': escapes the root"),
    ],
)
async def test_t6_what_cannot_be_read(call: Any, path: str, code: str, text: str) -> None:
    with pytest.raises(SandboxError) as failed:
        await call("read_file", path=path)
    assert (failed.value.code, failed.value.message) == (code, text)


async def test_a_host_path_inside_a_zone_is_answered_with_its_address(call: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a")
    result = await call("read_file", path=str(workspace / "a.txt"))
    assert result.value["path"] == "/workspace/a.txt"
    with pytest.raises(SandboxError) as failed:
        await call("read_file", path=str(workspace / "b.txt"))
    assert failed.value.message == "File not found: /workspace/b.txt"


_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\r\t"), max_size=300)


@given(content=_TEXT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_is_written_is_read(sandbox: Sandbox, content: str) -> None:
    content = content.removeprefix("\ufeff")
    write, read = create_write_file_tool(sandbox), create_read_file_tool(sandbox)
    await write.execute({"path": "a.txt", "content": content})
    result = await read.execute({"path": "a.txt", "limit": 10_000}, ToolContext())
    assert result.value["content"] == content
    assert result.value["total_lines"] == len(result.text.split("\n")) or not content
