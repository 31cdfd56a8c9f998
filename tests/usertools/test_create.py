"""Making a tool: what is written, what is refused, and that a folder appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.storage.home import ForgeHome
from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.create import NewTool, creation_problem, scaffold, write_tool_folder
from golem_forge.usertools.diagnostics import Unusable
from golem_forge.usertools.manifest import BooleanFlags
from golem_forge.usertools.manifest.tool_yaml import read_manifest


def made(**given: Any) -> dict[str, bytes]:
    return scaffold(NewTool.read({"name": "test_tool", "description": "Does it", **given}))


def refused(**given: Any) -> str:
    with pytest.raises(InputInvalid) as caught:
        made(**given)
    return caught.value.message


# What is written


def test_a_new_tool_is_a_manifest_and_a_source() -> None:
    files = made()
    assert list(files) == ["tool.yaml", "test_tool.py"]
    assert files["tool.yaml"].decode() == (
        "name: test_tool\ndescription: Does it\nversion: 1.0.0\nentrypoint: test_tool.py\n"
        "parameters: []\nboolean_flags: switch\n"
    )
    assert read_manifest(files["tool.yaml"], folder="test_tool").boolean_flags is BooleanFlags.SWITCH


@table(("language", "ending", "flags"), [("go", "go", "equals"), ("shell", "sh", "switch")])
def test_the_language_decides_the_source_and_the_flags(language: str, ending: str, flags: str) -> None:
    files = made(language=language)
    assert list(files) == ["tool.yaml", f"test_tool.{ending}"]
    assert f"boolean_flags: {flags}\n" in files["tool.yaml"].decode()


def test_everything_that_is_given_is_in_the_manifest() -> None:
    files = made(
        usage="One.\nTwo.",
        version="1.10",
        parameters=[{"name": "who", "type": "string", "description": "Whom", "default": "007"}],
        tests=[{"name": "greets", "arguments": {"who": "Ada"}, "expect": {"stdout": "Hello Ada\n"}}],
    )
    manifest = read_manifest(files["tool.yaml"], folder="test_tool")
    assert (manifest.usage, manifest.version) == ("One.\nTwo.", "1.10")
    assert manifest.parameters[0].default == "007"
    assert manifest.tests[0].expect.stdout == "Hello Ada\n"


def test_no_argument_becomes_code() -> None:
    canary = "CANARY\"'$(id)`id`"
    files = made(description=canary, usage=canary, version=canary[:20])
    assert b"CANARY" not in files["test_tool.py"]
    assert read_manifest(files["tool.yaml"], folder="test_tool").description == canary
    source = "#!/bin/sh\r\n\techo é\n\n"
    assert made(source=source, language="shell")["test_tool.sh"] == source.encode()


# The templates run as they are


def run_template(tmp_path: Path, argv: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "FORGE_WORKSPACE": "/somewhere"}
    return subprocess.run([*argv, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("language", "argv"),
    [("python", [sys.executable, "-I", "test_tool.py"]), ("shell", ["sh", "test_tool.sh"])],
)
def test_a_template_runs_as_it_is(tmp_path: Path, language: str, argv: list[str]) -> None:
    write_tool_folder(ForgeHome(tmp_path), "test_tool", made(language=language))
    folder = tmp_path / "tools" / "test_tool"
    assert run_template(folder, argv).stdout == "example: \nworkspace: /somewhere\n"
    given = run_template(folder, argv, "--example=a b;$(id)")
    assert (given.returncode, given.stdout) == (0, "example: a b;$(id)\nworkspace: /somewhere\n")
    assert run_template(folder, argv, "--other=1").returncode == 2


def test_the_go_template_is_go() -> None:
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    if (go := shutil.which("go", path=path)) is None:
        pytest.skip("no Go here")
    root = subprocess.run(
        [go, "env", "GOROOT"], capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout.strip()
    source = made(language="go")["test_tool.go"]
    formatted = subprocess.run([f"{root}/bin/gofmt"], input=source, capture_output=True, check=True, timeout=PATIENCE)
    assert formatted.stdout == source


# What is refused


@table(
    ("given", "said"),
    [
        ({"name": ""}, "name: missing required parameter"),
        ({"description": ""}, "description: missing required parameter"),
        ({"name": "", "description": ""}, "name: missing required parameter"),
        (
            {"name": "a b"},
            "invalid tool name 'a b': use letters, digits, '-' and '_', starting with a letter, at most 64, no '__'",
        ),
        ({"name": "Exec_Command"}, "tool name 'Exec_Command' is reserved"),
        ({"description": "a\nb"}, "description: must be one line"),
        ({"version": ""}, "version: must not be empty"),
        ({"usage": "\x1b[2J"}, "usage: must not contain control or hidden characters other than newline and tab"),
        ({"usage": "\ud800"}, "usage: contains half a surrogate pair, which is not a character"),
        ({"source": "\ud800"}, "source: contains half a surrogate pair, which is not a character"),
        ({"language": "rust"}, "language: must be one of python, shell, go"),
        ({"parameters": ["a"]}, "parameters[0]: must be a mapping (`key: value` lines)"),
        (
            {"parameters": [{"name": "a", "type": "text", "description": "d"}]},
            "parameters[0].type: must be one of string, number, integer, boolean, array, object",
        ),
        (
            {"parameters": [{"name": "a", "type": "string", "description": "d", "default": 7}]},
            "parameters[0].default: must be a string",
        ),
        (
            {"parameters": [{"name": "a", "type": "number", "description": "d", "default": float("nan")}]},
            "parameters[0].default: is not a finite number",
        ),
        (
            {"parameters": [{"name": "a", "type": "string", "description": "d", "requird": True}]},
            "parameters[0]: unknown key 'requird' (did you mean 'required'?)",
        ),
        ({"tests": [{"expect": {"exit_code": True}}]}, "tests[0].expect.exit_code: must be an integer"),
        ({"tests": [{"arguments": {"a": object}}]}, "tests[0].arguments.a: must be a JSON value, not type"),
        ({"tests": [{"arguments": {"a": 10**5000}}]}, "tests[0].arguments.a: is a number with too many digits"),
        (
            {"tests": [{"expect": {"stdout": "x" * 40_000}}] * 2},
            "tool.yaml would be larger than 64 KiB; shorten what is in it",
        ),
    ],
)
def test_what_would_be_no_manifest_is_refused_by_the_same_rules(given: dict[str, Any], said: str) -> None:
    assert refused(**given) == f"create_custom_tool: {said}"


def test_nesting_is_bounded() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert refused(tests=[{"expect": {"json": deep}}]).endswith("is too deeply nested")


def test_a_name_is_judged_in_the_order_people_are_told() -> None:
    taken, existing = {"read_file", "mine"}, {"mine", "Other"}
    assert creation_problem("", "", taken, existing) == "name: missing required parameter"
    assert creation_problem("a/b", " ", taken, existing) == "description: missing required parameter"
    assert creation_problem("a__b", "d", taken, existing).startswith("invalid tool name 'a__b'")
    assert creation_problem("exec_command", "d", {"exec_command"}, existing) == "tool name 'exec_command' is reserved"
    assert creation_problem("read_file", "d", taken, existing) == (
        "'read_file' is the name of an existing tool; choose another name"
    )
    assert creation_problem("mine", "d", taken, existing).startswith("'mine' is the name of an existing tool")
    assert creation_problem("mine", "d", (), existing) == "tool 'mine' already exists at /user_tools/mine"
    assert creation_problem("other", "d", (), existing) == "tool 'other' already exists at /user_tools/Other"
    assert creation_problem("a-b_1", "d", taken, existing) == ""


# All or nothing


def listing(home: Path) -> list[str]:
    return sorted(os.listdir(home / "tools"))


def test_a_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_tool_folder(
            ForgeHome(tmp_path), "x", {"tool.yaml": b"a", "lib/deep/m.py": b"b", "run": b"c"}, executable={"run"}
        )
    finally:
        os.umask(before)
    folder = tmp_path / "tools" / "x"
    modes = {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {"tool.yaml": 0o600, "lib": 0o700, "lib/deep": 0o700, "lib/deep/m.py": 0o600, "run": 0o700}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "lib/deep/m.py").read_bytes() == b"b"
    assert listing(tmp_path) == ["x"]


@pytest.mark.parametrize("present", ["x", "X"])
def test_what_is_there_is_never_replaced(tmp_path: Path, present: str) -> None:
    (tmp_path / "tools" / present).mkdir(parents=True)
    with pytest.raises(FileExistsError):
        write_tool_folder(ForgeHome(tmp_path), "x", {"tool.yaml": b"a"})
    assert listing(tmp_path) == [present]
    assert os.listdir(tmp_path / "tools" / present) == []


@table("file", ["../evil", "/etc/x", "a//b", "", "a/.", "a\0b"])
def test_no_file_leaves_the_folder(tmp_path: Path, file: str) -> None:
    with pytest.raises(Unusable):
        write_tool_folder(ForgeHome(tmp_path), "x", {"tool.yaml": b"a", file: b"b"})
    assert not (tmp_path / "tools").exists()
    with pytest.raises(Unusable):
        write_tool_folder(ForgeHome(tmp_path), "../x", {"tool.yaml": b"a"})


@pytest.mark.parametrize("step", ["open", "fsync", "rename"])
def test_any_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    real, calls = getattr(os, step), []

    def fails(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if step == "rename" or (len(calls) == 3):
            raise OSError(28, "No space left on device")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with pytest.raises(OSError, match="No space"):
            write_tool_folder(ForgeHome(tmp_path), "x", {"tool.yaml": b"a", "lib/x.py": b"b", "y.py": b"c"})
    assert calls
    assert listing(tmp_path) == []
    write_tool_folder(ForgeHome(tmp_path), "x", {"tool.yaml": b"a"})
    assert listing(tmp_path) == ["x"]


def test_of_creators_at_once_one_wins(tmp_path: Path) -> None:
    home, start, results = ForgeHome(tmp_path), threading.Barrier(8), []

    def create(number: int) -> None:
        start.wait()
        try:
            write_tool_folder(home, "x", {"tool.yaml": str(number).encode(), "x.py": str(number).encode()})
            results.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1
    folder = tmp_path / "tools" / "x"
    assert {path.read_text() for path in folder.iterdir()} == {str(results[0])}
    assert listing(tmp_path) == ["x"]
