"""Shell tools and programs of their own: a check by the right shell, an exec bit, a header."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from golem_forge.sandbox.walls.model import Level
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable


async def test_sh_unless_the_first_line_names_bash(works: Any) -> None:
    plain = await works.build(works.made({"x.sh": 'echo "sh:$1"\n'}))
    assert plain.program(Level.FULL).argv == ("/bin/sh", "/forge/tool/x.sh")
    assert (await works.run(plain, "a b")).text == "sh:a b\n"
    bash = await works.build(works.made({"x.sh": "#!/usr/bin/env bash\n[[ -n $BASH_VERSION ]] && echo bash\n"}))
    assert os.path.basename(bash.program(Level.FULL).argv[0]) == "bash"
    assert (await works.run(bash)).text == "bash\n"


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/usr/bin/env bash"], ids=["sh", "bash"])
async def test_a_broken_script_is_told_by_file_and_line(works: Any, first: str) -> None:
    with pytest.raises(Unusable) as caught:
        await works.build(works.made({"x.sh": f"{first}\ntouch /build/witness\nfi\n"}))
    assert caught.value.diagnostic_code is DiagnosticCode.BUILD_FAILED
    assert caught.value.message.startswith("x.sh:3: ")
    assert works.left() == []


async def test_debugging_shows_each_command(works: Any) -> None:
    prepared = await works.build(works.made({"x.sh": "echo out\n"}))
    assert (await works.run(prepared, debug=True)).text == "+ echo out\nout\n"


async def test_a_program_of_its_own_starts_nothing_to_be_prepared(works: Any) -> None:
    with open(shutil.which("true") or "", "rb") as file:
        binary = file.read()
    made = works.made({"run": binary}, executable=("run",))
    assert works.builder.needs(made.entry, made.files).cached
    prepared = await works.build(made)
    assert works.started == []
    assert prepared.program(Level.FULL).argv == ("/forge/tool/run",)
    assert prepared.program(Level.LANDLOCK).argv == (f"{os.path.realpath(made.snapshot.path)}/run",)
    assert (await works.run(prepared)).code == 0


@pytest.mark.parametrize(("content", "executable"), [("#!/bin/sh\n", ()), ("echo\n", ("run",))], ids=["bit", "header"])
async def test_what_the_system_could_not_start_is_refused(
    works: Any, content: str, executable: tuple[str, ...]
) -> None:
    with pytest.raises(Unusable) as caught:
        await works.build(works.made({"run": content}, executable=executable))
    assert caught.value.diagnostic_code is DiagnosticCode.NOT_EXECUTABLE
