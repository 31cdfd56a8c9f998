"""Python tools: checked without being executed; with dependencies, an environment of wheels that is made once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable


def script(*dependencies: str, code: str, requires: str = ">=3.11") -> str:
    named = ", ".join(f'"{each}"' for each in dependencies)
    return f'# /// script\n# requires-python = "{requires}"\n# dependencies = [{named}]\n# ///\n{code}\n'


@pytest.fixture
def offline(works: Any, links: Any) -> Any:
    """uv is told of nothing but a directory of distributions."""
    works.environ |= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(links.path)}
    return works


async def test_a_script_is_checked_once_and_not_executed(works: Any) -> None:
    made = works.made({"x.py": "open('/build/witness', 'w')\nprint('ran')\n"})
    prepared = await works.build(made)
    assert len(works.started) == 1
    assert works.started[0].reads_only
    await works.build(made)
    assert len(works.started) == 1
    assert works.builder.needs(made.entry, made.files).cached
    program = prepared.program(Level.FULL)
    assert program.argv[1:] == ("-E", "-s", "-S", "-B", "-X", "pycache_prefix=/forge/none")
    assert program.script == "/forge/tool/x.py"


@table(
    ("source", "expected"),
    [
        ("a = 1\nif a\n    pass\n", "x.py:2:5: SyntaxError: expected ':'"),
        ("a = 1\n  b = 2\n", "x.py:2:2: IndentationError: unexpected indent"),
        (b"x = '\xff'\n", "x.py:1"),
        (b"x = 1\0\n", "null bytes"),
        ("(" * 5000, "x.py:1"),
        ("\x1b[2J = 1\n", "\\x1b[2J"),
    ],
)
async def test_what_is_no_python_is_told_by_file_and_line(works: Any, source: str | bytes, expected: str) -> None:
    with pytest.raises(Unusable) as caught:
        await works.build(works.made({"x.py": source}))
    assert caught.value.diagnostic_code is DiagnosticCode.BUILD_FAILED
    assert expected in caught.value.message
    assert "\x1b" not in caught.value.message
    assert works.left() == []


async def test_the_text_of_a_failure_is_bounded(works: Any) -> None:
    with pytest.raises(Unusable) as caught:
        await works.build(works.made({"x.py": "é" * 100_000 + " = = 1\n"}))
    assert len(caught.value.message.encode()) <= 4096


async def test_read_only_walls_are_enough_for_a_check(works: Any) -> None:
    works.report = ProbeReport(level=Level.LANDLOCK)
    made = works.made({"x.py": "print(1)\n"})
    prepared = await works.build(made)
    program = prepared.program(Level.LANDLOCK)
    assert program.script == f"{os.path.realpath(made.snapshot.path)}/x.py"
    assert program.tool_dir == os.path.realpath(made.snapshot.path)


async def test_an_environment_is_made_once_for_two_at_once_and_for_an_edited_script(offline: Any, links: Any) -> None:
    links.wheel("greetlib", {"greetlib.py": "def hi(): return 'hi from a wheel'\n", "cacert.pem": "canary"})
    made = offline.made({"x.py": script("greetlib", code="import greetlib\nprint(greetlib.hi())")})
    assert offline.builder.needs(made.entry, made.files).hosts == ()
    prepared, other = await asyncio.gather(offline.build(made), offline.build(made))
    assert prepared == other
    assert sum("sync" in job.argv for job in offline.started) == 1
    assert (await offline.run(prepared)).text == "hi from a wheel\n"
    offline.started.clear()
    assert await offline.build(made) == prepared
    assert offline.started == []
    edited = offline.made({"x.py": script("greetlib", code="import greetlib\nprint(greetlib.hi(), 2)")})
    links.path.rename(links.path.with_name("gone"))  # the network cut
    assert (await offline.run(await offline.build(edited))).text == "hi from a wheel 2\n"
    assert len(offline.started) == 1  # the check of another source
    compiled = Path(prepared.out).rglob("greetlib.*.pyc")
    assert b"/forge/build/lib" in next(compiled).read_bytes()


async def test_nothing_of_a_wheel_runs_while_its_environment_is_made(offline: Any, links: Any) -> None:
    """A `.pth` line runs whenever that environment's Python starts: in a call, never in the build."""
    line = "import sys; open(sys.prefix + '/witness', 'w').write('ran')\n"
    links.wheel("evil", {"evil.pth": line, "evil.py": ""})
    prepared = await offline.build(offline.made({"x.py": script("evil", code="print('ok')")}))
    assert not (Path(prepared.out) / "witness").exists()


async def test_what_a_wheel_says_about_the_interpreter_is_not_believed(offline: Any, links: Any) -> None:
    links.wheel("evil", {"evil-1.0.data/data/pyvenv.cfg": "home = /root/.ssh\n", "evil.py": ""})
    prepared = await offline.build(offline.made({"x.py": script("evil", code="")}))
    shown = [one.host for one in prepared.program(Level.FULL).shown]
    assert not any(".ssh" in host for host in shown)


async def test_a_lock_decides(offline: Any, links: Any) -> None:
    links.wheel("greetlib", {"greetlib.py": "word = 1\n"})
    lock = (
        'version = 1\nrevision = 3\nrequires-python = ">=3.11"\n\n'
        '[manifest]\nrequirements = [{ name = "greetlib" }]\n\n'
        '[[package]]\nname = "greetlib"\nversion = "1.0"\nsource = { registry = "/forge/links/0" }\n'
        'wheels = [\n    { path = "greetlib-1.0-py3-none-any.whl" },\n]\n'
    )
    files = {"x.py": script("greetlib", code="import greetlib; print(greetlib.word)"), "x.py.lock": lock}
    prepared = await offline.build(offline.made(files))
    assert (await offline.run(prepared)).text == "1\n"
    assert any("--frozen" in job.argv for job in offline.started)
    with pytest.raises(Unusable):
        await offline.build(offline.made(files | {"x.py.lock": "not a lock"}))


@pytest.mark.parametrize(
    "said",
    [
        '[tool.uv.sources]\n# greetlib = { path = "./WHEEL" }',
        pytest.param('[tool.uv]\n# find-links = ["./"]', marks=pytest.mark.long),
    ],
)
async def test_a_wheel_beside_one_script_is_never_installed_for_another(offline: Any, links: Any, said: str) -> None:
    """Environments are shared by equal blocks, and building one needs nobody's trust in the tool."""
    wheel = "greetlib-1.0-py3-none-any.whl"
    block = script("greetlib", code="").replace("# ///\n\n", f"# {said.replace('WHEEL', wheel)}\n# ///\n")
    for word in ("evil", "good"):
        links.wheel("greetlib", {"greetlib.py": f"word = {word!r}\n"})
        beside = (links.path / wheel).read_bytes()
        (links.path / wheel).unlink()
        made = offline.made({"x.py": f"{block}import greetlib; print(greetlib.word)\n", wheel: beside}, name=word)
        assert (await offline.run(await offline.build(made))).text == f"{word}\n"


async def test_hosts_are_named_before_anything_is_started(works: Any) -> None:
    made = works.made({"x.py": script("requests", code="")})
    needs = works.builder.needs(made.entry, made.files)
    assert (needs.hosts, needs.cached) == (("pypi.org", "files.pythonhosted.org"), False)
    assert works.started == []
    with pytest.raises(Unusable) as caught:
        await works.build(made)  # nobody agreed to the hosts: no network
    assert caught.value.diagnostic_code is DiagnosticCode.DEPENDENCIES_UNAVAILABLE


async def test_an_environment_needs_full_walls(offline: Any, links: Any) -> None:
    links.wheel("greetlib", {"greetlib.py": ""})
    offline.report = ProbeReport(level=Level.LANDLOCK)
    with pytest.raises(SandboxError) as caught:
        await offline.build(offline.made({"x.py": script("greetlib", code="")}))
    assert caught.value.code == "WALLS_UNAVAILABLE"


async def test_a_block_without_dependencies_is_an_ordinary_script_and_debugging_tells_what_developers_see(
    works: Any,
) -> None:
    made = works.made({"x.py": script(code="import sys; print(sys.flags.dev_mode, sys.flags.no_site)")})
    assert works.builder.needs(made.entry, made.files).hosts == ()
    prepared = await works.build(made)
    assert (await works.run(prepared)).text == "False 1\n"
    assert (await works.run(prepared, debug=True)).text == "True 1\n"


async def test_another_python_than_there_is_is_said_so(works: Any) -> None:
    made = works.made({"x.py": script(code="", requires=">=9.1")})
    with pytest.raises(Unusable, match=r"requires-python is '>=9\.1'") as caught:
        await works.build(made)
    assert caught.value.diagnostic_code is DiagnosticCode.DEPENDENCIES_UNAVAILABLE
    assert works.started == []


async def test_without_uv_it_says_what_to_do(works: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.usertools.build.requirements._program_directories", tuple)
    made = works.made({"x.py": script("requests", code="")})
    with pytest.raises(Unusable) as caught:
        works.builder.needs(made.entry, made.files)
    assert caught.value.diagnostic_code is DiagnosticCode.TOOLCHAIN_MISSING
