"""Go tools: built once, by what they are made of, in walls that show no other tool."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable

HELLO = """package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println("hello", os.Args[1:]) }
"""


PRETENDS_TO_BE_A_REPOSITORY = {
    ".git/config": '[core]\n\tfsmonitor = "touch /build/out/witness"\n\trepositoryformatversion = 0\n',
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/objects/x": "",
    ".git/refs/x": "",
}


async def test_x_is_built_from_x_go_with_what_lies_beside_it_and_runs_no_git(go_works: Any) -> None:
    """Beside it: another source, a file to embed, and a vendored module, which needs no host."""
    files = {
        **PRETENDS_TO_BE_A_REPOSITORY,
        "mytool.go": "package main\n\nfunc main() { greet() }\n",
        "other.go": 'package main\n\nimport (\n\t_ "embed"\n\t"fmt"\n\n\t"example.test/lib"\n)\n\n'
        "//go:embed key.pem\nvar text string\n\nfunc greet() { fmt.Print(lib.Word(), text) }\n",
        "key.pem": " canary\n",
        "go.mod": "module example.test/x\n\ngo 1.20\n\nrequire example.test/lib v1.0.0\n",
        "vendor/modules.txt": "# example.test/lib v1.0.0\n## explicit; go 1.20\nexample.test/lib\n",
        "vendor/example.test/lib/lib.go": 'package lib\n\nfunc Word() string { return "vendored" }\n',
    }
    made = go_works.made(files, "mytool")
    assert go_works.builder.needs(made.entry, made.files).hosts == ()
    prepared = await go_works.build(made)
    assert sorted(os.listdir(prepared.out)) == [".module", "mytool"]
    assert prepared.program(Level.FULL).argv == ("/forge/build/mytool",)
    assert (await go_works.run(prepared)).text == "vendored canary\n"


async def test_a_module_that_is_no_program_is_refused(go_works: Any) -> None:
    with pytest.raises(Unusable, match="package main"):
        await go_works.build(go_works.made({"mytool.go": "package lib\n"}))


async def test_modules_come_from_a_proxy_of_the_persons_own_directory(go_works: Any, tmp_path: Path) -> None:
    """Also where debugging runs the source, in the working directory."""
    _module_proxy(tmp_path / "proxy")
    go_works.environ |= {"GOPROXY": f"file://{tmp_path}/proxy", "GOSUMDB": "off"}
    files = {
        "mytool.go": 'package main\n\nimport (\n\t"fmt"\n\t"os"\n\n\t"example.test/lib"\n)\n\n'
        "func main() { d, _ := os.Getwd(); fmt.Println(lib.Word(), d, os.Args[1]) }\n",
        "go.mod": "module example.test/x\n\ngo 1.20\n\nrequire example.test/lib v1.0.0\n",
    }
    made = go_works.made(files)
    assert go_works.builder.needs(made.entry, made.files).hosts == ()
    prepared = await go_works.build(made)
    for debug in (False, True):
        ran = await go_works.run(prepared, "a;b", debug=debug)
        assert (ran.code, ran.text) == (0, "from a module /workspace a;b\n"), debug


async def test_modules_that_cannot_be_fetched_are_no_compiler_error(go_works: Any) -> None:
    files = {"mytool.go": HELLO, "go.mod": "module x\n\nrequire (\n\texample.test/gone v1.0.0\n)\n"}
    made = go_works.made(files)
    assert go_works.builder.needs(made.entry, made.files).hosts == ("proxy.golang.org", "sum.golang.org")
    with pytest.raises(Unusable) as caught:
        await go_works.build(made)  # nobody agreed to the hosts
    assert caught.value.diagnostic_code is DiagnosticCode.DEPENDENCIES_UNAVAILABLE
    assert go_works.compilers() == 0


async def test_an_unknown_standard_package_is_compiled_without_the_tool(go_works: Any) -> None:
    source = 'package main\n\nimport "container/ring"\n\nfunc main() { print(ring.New(3).Len()) }\n'
    told: list[str] = []
    files = {"mytool.go": source, "go.mod": "module example.test/x\n\ngo 1.20\n"}  # its own, which requires nothing
    prepared = await go_works.build(go_works.made(files), report=told.append)
    assert [each.split(" ")[:2] for each in told] == [["compiling", "what"], ["compiling", "'mytool'"]]
    warming = [job for job in go_works.started if job.env["GOCACHE"] == "/build"]
    assert ["container/ring" in job.argv for job in warming] == [True]
    building = [job for job in go_works.started if job.argv[-1] == "."]
    assert building and all(job.env["GOCACHE"] == "/build/gocache" for job in building)
    assert all(any(one.inner == "/forge/gocache" for one in job.shown) for job in building)
    assert all(one.inner != "/forge/tool" for job in warming for one in job.shown), "no tool can write the shared cache"
    assert (await go_works.run(prepared)).text == "3"


async def test_a_build_that_is_cancelled_ends_its_processes_and_leaves_nothing(works: Any) -> None:
    building = asyncio.create_task(works.build(works.made({"mytool.go": HELLO})))  # with an empty cache: some seconds
    while len(works.started) < 2:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE):
        while not _in_walls_of(works.home.path):
            await asyncio.sleep(0.05)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert works.left() == []
    assert _in_walls_of(works.home.path) == []


@pytest.mark.usefixtures("without_go")
async def test_without_go_it_says_what_to_do(works: Any) -> None:
    works.environ = dict(os.environ)
    made = works.made({"mytool.go": HELLO})
    for ask in (lambda: works.builder.needs(made.entry, made.files), lambda: asyncio.run(works.build(made))):
        with pytest.raises(Unusable) as caught:
            await asyncio.to_thread(ask)
        assert caught.value.diagnostic_code is DiagnosticCode.TOOLCHAIN_MISSING
        assert caught.value.message.startswith("Go was not found on this machine; ")
    assert not works.builder.has_go()


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.NONE])
async def test_nothing_is_built_without_full_walls(go_works: Any, level: Level) -> None:
    go_works.report = ProbeReport(level=level)
    with pytest.raises(SandboxError) as caught:
        await go_works.build(go_works.made({"mytool.go": HELLO}))
    assert caught.value.code == "WALLS_UNAVAILABLE"
    assert go_works.started == []


def _in_walls_of(home: Path) -> list[str]:
    """Processes that have something of this home mounted, and nobody else does."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            table = Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
        except OSError:
            continue
        if f"{home.parent.name}/{home.name}/" in table:
            found.append(pid)
    return found


def _module_proxy(place: Path) -> None:
    import zipfile

    versions = place / "example.test" / "lib" / "@v"
    versions.mkdir(parents=True)
    go_mod = "module example.test/lib\n\ngo 1.20\n"
    (versions / "list").write_text("v1.0.0\n")
    (versions / "v1.0.0.info").write_text('{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}')
    (versions / "v1.0.0.mod").write_text(go_mod)
    with zipfile.ZipFile(versions / "v1.0.0.zip", "w") as archive:
        archive.writestr("example.test/lib@v1.0.0/go.mod", go_mod)
        archive.writestr(
            "example.test/lib@v1.0.0/lib.go", 'package lib\n\nfunc Word() string { return "from a module" }\n'
        )
