"""grep_files with both engines: every test here holds for ripgrep and for Python alike."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer
from tests.tables import table

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.search import create_grep_files_tool, grep_files

MORE = "[more matches; narrow the pattern or raise limit]"


def write(path: Path, content: str | bytes = "needle\n", age: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if age:
        then = time.time() - age
        os.utime(path, (then, then))


async def found(call: Any, pattern: str = "needle", **args: Any) -> list[str]:
    result = await call("grep_files", pattern=pattern, **args)
    assert result.value["kind"] == "search.result"
    return [] if result.text == "No matches." else list(result.text.split("\n"))


async def test_files_newest_change_first_ties_by_path(call: Any, engine: str, workspace: Path) -> None:
    for name, age in (("old.txt", 500), ("b/tie.txt", 100), ("a/tie.txt", 100), ("new.txt", 10)):
        write(workspace / name, age=age)
    stamp = (workspace / "a" / "tie.txt").stat().st_mtime_ns
    os.utime(workspace / "b" / "tie.txt", ns=(stamp, stamp))
    write(workspace / "none.txt", "hay\n")
    result = await call("grep_files", pattern="needle")
    assert result.text.split("\n") == [
        *("/workspace/new.txt", "/workspace/a/tie.txt", "/workspace/b/tie.txt", "/workspace/old.txt"),
    ]
    assert result.value["engine"] == engine
    assert result.value["files"] == result.text.split("\n")
    assert (result.value["count"], result.value["truncated"]) == (4, False)
    assert await found(call, limit=2) == ["/workspace/new.txt", "/workspace/a/tie.txt", MORE]


async def test_lines_in_path_order_cut_at_500(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "b.txt", "needle one\nhay\nneedle two\r\n")
    write(workspace / "a.txt", "x" * 300 + "needle" + "é" * 5000 + "\n")
    write(workspace / "a" / "z.txt", "a needle without an end")
    result = await call("grep_files", pattern="needle", mode="lines")
    text = ("x" * 300 + "needle" + "é" * 5000)[:500]
    assert result.text.split("\n") == [
        f"/workspace/a.txt:1: {text}",
        "/workspace/a/z.txt:1: a needle without an end",
        "/workspace/b.txt:1: needle one",
        "/workspace/b.txt:3: needle two",
    ]
    assert result.value["engine"] == engine
    assert result.value["matches"][2] == {"path": "/workspace/b.txt", "number": 1, "text": "needle one"}


async def test_a_longer_list_of_lines_ends_with_their_number(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "a.txt", "needle\n" * 7)
    assert (await found(call, mode="lines"))[6:] == ["/workspace/a.txt:7: needle", "[7 lines match]"]
    assert (await found(call, mode="lines", limit=6))[5:] == ["/workspace/a.txt:6: needle", MORE]


async def test_lines_stop_at_the_limit(call: Any, engine: str, workspace: Path) -> None:
    for number in range(40):
        write(workspace / f"{number:02}.txt", "needle\n" * 50)
    shown = await found(call, mode="lines", limit=51)
    assert shown[:50] == [f"/workspace/00.txt:{number}: needle" for number in range(1, 51)]
    assert shown[50:] == ["/workspace/01.txt:1: needle", MORE]
    whole = await found(call, mode="lines", limit=2000)
    assert whole[1999:] == ["/workspace/39.txt:50: needle", "[2000 lines match]"]
    assert (await found(call, "needle", path="00.txt", mode="lines", limit=50))[50:] == ["[50 lines match]"]


async def test_t44_no_match(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "a.txt", "hay\n")
    for mode in ("files", "lines"):
        result = await call("grep_files", pattern="needle", mode=mode)
        assert result.text == "No matches."
        assert (result.value["engine"], result.value["count"]) == (engine, 0)


async def test_what_is_not_searched(call: Any, engine: str, workspace: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside.txt")
    write(workspace / "real" / "a.txt")
    (workspace / "link.txt").symlink_to("real/a.txt")
    (workspace / "linked").symlink_to("real")
    (workspace / "out.txt").symlink_to(tmp_path / "outside.txt")
    os.mkfifo(workspace / "pipe")
    write(workspace / ".git" / "HEAD")
    write(workspace / "sub" / ".git")
    write(workspace / "early.bin", b"needle\n\0\n")
    write(workspace / "late.bin", b"hay\n" * 10 + b"\0needle\n")
    write(workspace / ".env")
    write(workspace / "deep" / "er" / "and" / "deep" / "er" / ".ssh" / "config")
    write(workspace / "key.pem")
    for name in (b"/bad\xff.txt", b"/line\nbreak.txt", b"/esc\x1b.txt", b"/line\ndir/a.txt"):
        path = os.fsencode(workspace) + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_text("needle\n")
    write(workspace / ".hidden" / "b.txt")
    expected = ["/workspace/.hidden/b.txt", "/workspace/real/a.txt"]
    assert sorted(await found(call)) == expected
    assert await found(call, mode="lines") == [f"{path}:1: needle" for path in expected]


@table("path", [".", "late"])
async def test_a_nul_after_the_first_8_kib_makes_no_file_binary(
    call: Any, engine: str, workspace: Path, path: str
) -> None:
    write(workspace / "late", b"needle\n" + b"x\n" * 10_000 + b"\0\nneedle late\n")
    write(workspace / "later", b"needle\n" + b"x\n" * 60_000 + b"\0 needle\n")
    write(workspace / "after", b"x\n" * 5_000 + b"\0\nneedle\n")
    write(workspace / "early", b"needle\n" + b"x\n" * 1_000 + b"\0\nneedle\n")
    expected = {
        "after": ["5002: needle"],
        "late": ["1: needle", "10003: needle late"],
        "later": ["1: needle", "60002: \0 needle"],
    }
    here = [name for name in expected if path in (".", name)]
    lines = [f"/workspace/{name}:{line}" for name in here for line in expected[name]]
    assert sorted(await found(call, path=path)) == [f"/workspace/{name}" for name in here]
    told = ["[5 lines match]"] if path == "." else []
    assert await found(call, path=path, mode="lines") == [*lines, *told]


async def test_text_that_is_not_plain_utf8(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "utf16.txt", b"\xff\xfe" + "needle é\n".encode("utf-16-le"))
    write(workspace / "bom.txt", b"\xef\xbb\xbfneedle\n")
    write(workspace / "latin.txt", "needle é\n".encode("latin-1"))
    assert await found(call, "^needle", mode="lines") == [
        *("/workspace/bom.txt:1: needle", "/workspace/latin.txt:1: needle \ufffd", "/workspace/utf16.txt:1: needle é"),
    ]


async def test_a_rule_about_reading_holds(call: Any, ctx: ToolContext, engine: str, workspace: Path) -> None:
    write(workspace / "private" / "deep" / "a.txt")
    write(workspace / "b.txt")
    rule = PathRule(
        matches=lambda path: path == "/workspace/private",
        literal="/workspace/private",
        verdict=Verdict.BLOCKED,
        access=frozenset({Verb.READ}),
    )
    ctx.path_rules = lambda: (rule,)
    assert await found(call) == ["/workspace/b.txt"]
    assert await found(call, mode="lines") == ["/workspace/b.txt:1: needle"]


async def test_a_secret_that_was_asked_for_is_searched(
    call: Any, ctx: ToolContext, engine: str, workspace: Path
) -> None:
    write(workspace / ".env", "needle=1\n")
    write(workspace / ".ssh" / "config")
    assert await found(call, path=".env", mode="lines") == ["/workspace/.env:1: needle=1"]
    assert await found(call, path=".ssh") == ["/workspace/.ssh/config"]
    effect = create_grep_files_tool().planner({"pattern": "x", "path": ".env"}, ctx).effects[0]
    assert (effect.verb, effect.target, [mark.value for mark in effect.marks]) == (
        Verb.READ,
        "/workspace/.env",
        ["secret_path"],
    )


async def test_one_file(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "a" / "-x.txt", "one\nneedle\n")
    write(workspace / "a" / "other.txt")
    write(workspace / ".gitignore", "-x.txt\n")
    assert await found(call, path="a/-x.txt") == ["/workspace/a/-x.txt"]
    assert await found(call, path="/workspace/a/-x.txt", mode="lines") == ["/workspace/a/-x.txt:2: needle"]
    write(workspace / "b.bin", b"needle\0")
    assert await found(call, path="b.bin") == []


async def test_every_zone(call: Any, engine: str, workspace: Path, docs: Path) -> None:
    write(workspace / "a.txt", age=5)
    write(docs / "b.txt", age=50)
    assert await found(call, path="/") == ["/workspace/a.txt", "/docs/b.txt"]
    assert await found(call, path="/", mode="lines") == ["/docs/b.txt:1: needle", "/workspace/a.txt:1: needle"]
    assert await found(call, path="/docs") == ["/docs/b.txt"]


@table(
    ("include", "names"),
    [
        ("*.{py,ts}", ["a.py", "src/b.py", "src/d.ts", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("/src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("src/deep/", ["src/deep/c.py"]),
        ("!*.py", ["src/d.ts"]),
        ("*.log", []),
    ],
)
async def test_t44_include(call: Any, engine: str, workspace: Path, include: str, names: list[str]) -> None:
    for name in ("a.py", "src/b.py", "src/d.ts", "src/deep/c.py", "ignored.log"):
        write(workspace / name)
    write(workspace / ".gitignore", "*.log\n")
    assert sorted(await found(call, include=include)) == [f"/workspace/{name}" for name in names]


async def test_include_is_about_the_path_from_where_the_search_begins(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "src" / "deep" / "c.py")
    assert await found(call, path="src", include="deep/*.py") == ["/workspace/src/deep/c.py"]
    assert await found(call, path="src", include="src/deep/*.py") == []


async def test_no_include_glob_freezes_the_runtime(call: Any, engine: str, workspace: Path) -> None:
    """Each star of these would try every place of a long name again, for each place of the star before it."""
    long_name = "a" * 250
    write(workspace / long_name)
    write(workspace / "xaab")
    assert await found(call, include="*a" * 40 + "*b") == []
    assert await found(call, include="*a" * 40 + "*") == [f"/workspace/{long_name}"]
    assert await found(call, include="[x]*a*[!b]*b") == ["/workspace/xaab"]
    for include in ("{x,y}*{a,b}*{a,b}*{b,c}*", "{x,}{,x}a{a,}{b,a}{,b}"):
        costly = await call("grep_files", pattern="needle", include=include)
        assert costly.value["engine"] == "python", "in a process that can be killed"
        assert costly.text == "/workspace/xaab"


async def test_ignore_case_and_unicode(call: Any, engine: str, workspace: Path) -> None:
    write(workspace / "a.txt", "NEEDLE Ärger\n")
    assert await found(call) == []
    assert await found(call, ignore_case=True) == ["/workspace/a.txt"]
    assert await found(call, "ärger", ignore_case=True) == ["/workspace/a.txt"]
    assert await found(call, r"\wrger$") == ["/workspace/a.txt"]
    assert await found(call, "-") == []


@table(
    ("pattern", "lines"),
    [
        (r"^b|a$", [1, 2]),
        (r"a\s|[^x]b|d{2,}", []),
        (r"^$", [3]),
        (r"\b(c)(d)\b|c.", [4]),
    ],
)
async def test_lines_are_matched_one_by_one(
    call: Any, engine: str, workspace: Path, pattern: str, lines: list[int]
) -> None:
    write(workspace / "t.txt", "a\nb\n\ncd\n")
    shown = (await call("grep_files", pattern=pattern, mode="lines")).value["matches"]
    assert [line["number"] for line in shown] == lines


@table(("pattern", "position"), [("(", 0), ("ab(c", 2), ("a[b", 1), ("*a", 0), ("a**b(", None), ("é[", 1)])
async def test_t44_a_bad_pattern_is_told_with_its_position(
    call: Any, engine: str, workspace: Path, pattern: str, position: int | None
) -> None:
    write(workspace / "a.txt")
    with pytest.raises(ForgeError, match=r"^grep_files: pattern: not a valid pattern: .* at position \d+$") as raised:
        await call("grep_files", pattern=pattern)
    assert raised.value.status is Status.INPUT_INVALID
    if position is not None:
        assert raised.value.message.endswith(f"at position {position}")


async def test_a_pattern_only_ripgrep_refuses_has_its_position(
    ctx: ToolContext, workspace: Path, bare_walls: Any
) -> None:
    ctx.walls = bare_walls()
    write(workspace / "a.txt")
    tool = create_grep_files_tool()
    for pattern, position in (("ab(?=x)", 2), (r"(a)\1", 3), (r"x\ny", 1)):
        with pytest.raises(ForgeError, match=rf"^grep_files: pattern: not a valid pattern: .* at position {position}$"):
            await tool.execute({"pattern": pattern}, ctx)


@table("args", [{"pattern": "  "}, {"pattern": ""}, {"pattern": "x" * 1001}, {"pattern": "a\nb"}])
def test_t44_what_is_no_pattern(args: dict[str, Any]) -> None:
    with pytest.raises(ForgeError, match=r"^grep_files: pattern: ") as raised:
        create_grep_files_tool().validate(args)
    assert raised.value.status is Status.INPUT_INVALID


def test_other_arguments() -> None:
    tool = create_grep_files_tool()
    values = tool.validate({"pattern": "x"}).values
    assert values == {
        "pattern": "x",
        "path": ".",
        "include": "",
        "mode": "files",
        "ignore_case": False,
        "limit": 100,
    }
    for field, value in (("limit", 0), ("limit", 2001), ("mode", "all"), ("include", "{a")):
        with pytest.raises(ForgeError, match=f"^grep_files: {field}: "):
            tool.validate({"pattern": "x", field: value})


async def test_t44_a_pattern_without_end_is_stopped_and_what_was_found_is_kept(
    call: Any, ctx: ToolContext, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(workspace / "a.txt", "aaa\n")
    write(workspace / "b.txt", "a" * 40 + "b\n")

    for seconds in ever_longer(0.8):
        monkeypatch.setattr(grep_files, "SECONDS", seconds)
        seen = await create_grep_files_tool().planner({"pattern": "(a+)+$", "mode": "lines"}, ctx).run()
        if "aaa" in seen.result.text:
            break

    assert seen.status is Status.TIMEOUT
    assert seen.result.text == f"Search stopped after {seconds:g} s; matches so far:\n/workspace/a.txt:1: aaa"
    assert seen.result.value["truncated"] is True
    assert not _searching()


async def test_a_cancelled_search_leaves_nothing_behind(ctx: ToolContext, workspace: Path) -> None:
    write(workspace / "b.txt", "a" * 40 + "b\n")
    work = asyncio.ensure_future(create_grep_files_tool().planner({"pattern": "(a+)+$"}, ctx).run())
    deadline = time.monotonic() + PATIENCE
    while not _searching() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert _searching()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not _searching()


def test_the_search_ends_when_forge_is_killed(ctx: ToolContext, workspace: Path) -> None:
    write(workspace / "b.txt", "a" * 40 + "b\n")

    def search_for_ever() -> None:
        asyncio.run(create_grep_files_tool().execute({"pattern": "(a+)+$"}, ctx))

    forge = multiprocessing.get_context("fork").Process(target=search_for_ever)
    forge.start()
    children = Path(f"/proc/{forge.pid}/task/{forge.pid}/children")
    try:
        pid = wait_for(lambda: next((each for each in children.read_text().split() if busy(each)), ""))
    finally:
        forge.kill()
        forge.join()
    assert wait_for(lambda: not busy(pid))


def busy(pid: str) -> bool:
    """Whether a process uses its CPU: it is past its start, and inside the pattern."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" and int(fields[11]) >= 20


def wait_for(condition: Any, seconds: float = PATIENCE) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert answer
    return answer


def _searching() -> list[str]:
    """Children of this process that run the Python engine."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    commands = (Path(f"/proc/{pid}/cmdline") for pid in children.read_text().split())
    return [text for each in commands if "pattern_child" in (text := each.read_text())]


async def test_without_a_ripgrep_that_starts_python_does_it(ctx: ToolContext, workspace: Path, bare_walls: Any) -> None:
    write(workspace / "a.txt")
    walls = bare_walls("/bin/ls")
    ctx.walls = walls
    result = await create_grep_files_tool().execute({"pattern": "needle"}, ctx)
    assert len(walls.jobs) == 1
    assert (result.value["engine"], result.text) == ("python", "/workspace/a.txt")


async def test_a_tool_with_a_sandbox_of_its_own_does_not_use_other_walls(
    workspace: Path, sandbox: Any, bare_walls: Any
) -> None:
    write(workspace / "a.txt")
    other = ToolContext(walls=bare_walls())
    result = await create_grep_files_tool(sandbox).execute({"pattern": "needle"}, other)
    assert (result.value["engine"], result.text) == ("python", "/workspace/a.txt")


async def test_zone_files_names_what_a_search_would_look_at_and_nothing_that_is_held_back(tmp_path: Path) -> None:
    zone, outside = tmp_path / "zone", tmp_path / "outside"
    for path in ("notes.txt", "src/deep/a b.py", "build/x.o", "src/skip.log", ".env", ".git/config", "private/key.txt"):
        write(zone / path)
    write(zone / ".gitignore", "build/\n*.log\n")
    write(outside / "far.txt")
    (zone / "link").symlink_to(outside)
    sandbox = open_sandbox([ZoneSpec(name="workspace", path=zone)])
    rule = PathRule(
        matches=lambda path: path == "/workspace/private",
        literal="/workspace/private",
        verdict=Verdict.BLOCKED,
        access=frozenset({Verb.READ}),
    )
    assert await grep_files.zone_files(sandbox, (rule,), 100, 20.0) == [
        *("/workspace/.gitignore", "/workspace/notes.txt", "/workspace/src/deep/a b.py"),
    ]
    assert len(await grep_files.zone_files(sandbox, (), 2, 20.0)) == 2
