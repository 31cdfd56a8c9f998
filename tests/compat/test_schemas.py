"""What programs read of Forge, pinned from outside: the web API, events, the MCP surface, the JSON of an outcome.

`schemas/api.json` is the OpenAPI document that a real `forge web` serves, `schemas/events.json` the events and actions
in it. `schemas/mcp.json` is what `forge mcp serve` answers for the program in `schemas/program`, and
`schemas/outcomes.json` what `forge call --json` prints there. Versions, ids, times, digests and durations are replaced
by `<names>`. After a wanted change one command writes them all:

    FORGE_UPDATE_PINNED=1 python -m pytest tests/compat/test_schemas.py

The last tests look at the source: each of these names must stand there as a literal, so that renaming a class, a
function or a module changes none of them.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from tests.compat.pinned import pinned
from tests.deadlines import PATIENCE
from tests.ready import run_in_process

import golem_forge
from golem_forge.agent.session import entry_session
from golem_forge.cli.call import call_in_session, parse

HERE = Path(__file__).parent / "schemas"
SOURCE = Path(golem_forge.__file__).parent
REF = "#/components/schemas/"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / "program", tmp_path / "program", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def environ(own_home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORGE_", "PYTHON"))}
    return kept | {"HOME": str(own_home.parent), "FORGE_HOME": str(own_home), "TZ": "UTC"}


def settled(value: Any) -> Any:
    """Without what differs from run to run and from machine to machine."""
    if isinstance(value, list):
        return [settled(each) for each in value]
    if isinstance(value, dict):
        return {key: "<ms>" if key == "durationMs" else settled(each) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    value = value.replace(golem_forge.__version__, "<version>")
    value = re.sub(r"\bout_[0-9a-f]{12}\b", "<handle>", value)
    value = re.sub(r"\b[0-9a-f]{64}\b", "<digest>", re.sub(r"\b[0-9a-f]{32}\b", "<id>", value))
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", value)


# ---- the web API


@pytest.fixture(scope="module")
def description(ready_forge: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """As a program gets it: log in with the printed link, keep the cookie, ask."""
    place = tmp_path_factory.mktemp("served")
    env = os.environ | {"HOME": str(place), "FORGE_HOME": str(place / "home")}
    server = ready_forge.start(["forge", "web", "--no-open"], cwd=place, env=env)
    try:
        said = server.stdout.readline()
        link = urlsplit(re.search(r"http://\S+", said)[0])
        origin, code = f"{link.scheme}://{link.netloc}", link.fragment.removeprefix("code=")
        headers = {"Origin": origin, "Content-Type": "application/json"}
        login = Request(f"{origin}/api/login", json.dumps({"code": code}).encode(), headers, method="POST")
        with urlopen(login, timeout=PATIENCE) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        with urlopen(Request(f"{origin}/api/openapi.json", headers={"Cookie": cookie}), timeout=PATIENCE) as answer:
            document = json.load(answer)
    finally:
        server.kill()
        server.wait(timeout=PATIENCE)
    assert document["info"]["version"] == golem_forge.__version__
    document["info"]["version"] = "<version>"
    named = document["components"]["securitySchemes"]["cookie"]
    assert named["name"] == cookie.partition("=")[0]
    named["name"] = "<cookie>"
    return document


def folded(document: dict[str, Any]) -> dict[str, Any]:
    """What every operation answers alike stands once."""
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    shared = dict(operations[0]["responses"])
    for one in operations:
        shared = {status: said for status, said in shared.items() if one["responses"].get(status) == said}
    paths = {
        path: {
            method: {
                **one,
                "responses": {status: said for status, said in one["responses"].items() if status not in shared},
            }
            for method, one in methods.items()
        }
        for path, methods in document["paths"].items()
    }
    return {**without_events(document), "paths": paths, "every operation": {"responses": shared}}


def without_events(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    rest = {name: schema for name, schema in schemas.items() if not name.startswith(("event.", "action."))}
    rest |= {name: {**rest[name], "oneOf": "<each>", "discriminator": "<by type>"} for name in ("Event", "AnyAction")}
    return {**document, "components": {**document["components"], "schemas": rest}}


def test_the_description_of_the_web_api(description: dict[str, Any]) -> None:
    assert folded(description) == pinned(HERE / "api.json", folded(description))


def test_the_schema_of_every_event_and_action(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    found: dict[str, Any] = {"envelope": {}, "events": {}, "actions": {}}
    for name, schema in schemas.items():
        part, dot, kind = name.partition(".")
        if not dot:
            continue
        members = dict(schema["properties"])
        assert members.pop("type") == {"const": kind}
        data = members.pop("data")
        if part == "action":
            assert schema == {
                "type": "object",
                "properties": {"type": {"const": kind}, "data": data},
                "required": ["type", "data"],
            }
            assert data == schemas[f"event.{kind}"]["properties"]["data"]
            found["actions"][kind] = "as its event"
            continue
        recorded = "recorded" if schema["description"] == "" else "not recorded"
        rest = {**schema, "properties": members}
        assert found["envelope"].setdefault(recorded, rest) == rest, name
        found["events"][kind] = {"envelope": recorded, **data}
    assert found == pinned(HERE / "events.json", found)
    for one, part in (("Event", "events"), ("AnyAction", "actions")):
        prefix = f"{REF}{part[:-1]}."
        assert schemas[one]["oneOf"] == [{"$ref": prefix + kind} for kind in found[part]]
        assert schemas[one]["discriminator"] == {
            "propertyName": "type",
            "mapping": {kind: prefix + kind for kind in found[part]},
        }


# ---- MCP


class Client:
    """One line a message, as any MCP client over stdio."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self._number = 0

    def send(self, method: str, **more: Any) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        self._number += 1
        self.send(method, id=self._number, params=params)
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._number:
                return settled({key: part for key, part in answer.items() if key not in ("jsonrpc", "id")})


ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("resources/read", {"uri": "forge://zone/workspace/note.txt"}),
    ("resources/read", {"uri": "forge://zone/workspace/none.txt"}),
    ("tools/call", {"name": "add", "arguments": {"a": 3}}),
    ("tools/call", {"name": "add", "arguments": {"a": "three", "c": 1}}),
    ("tools/call", {"name": "greet", "arguments": {"name": "Ada"}}),
    ("tools/call", {"name": "shut", "arguments": {}}),
    ("tools/call", {"name": "fail", "arguments": {"why": "no such thing"}}),
    ("tools/call", {"name": "long", "arguments": {}}),
    ("tools/call", {"name": "read_file", "arguments": {"path": "note.txt"}}),
    *(
        ("tools/call", {"name": "shapes", "arguments": {"kind": kind}})
        for kind in ("text", "diff", "file_content", "file_list", "json", "own")
    ),
    ("tools/call", {"name": "none", "arguments": {}}),
    ("tools/none", {}),
)


def test_what_mcp_clients_see(ready_forge: Any, project: Path, environ: dict[str, str]) -> None:
    trusted(ready_forge, project, environ)
    process = ready_forge.start_with_input(["forge", "mcp", "serve"], cwd=project, env=environ)
    try:
        client = Client(process)
        me = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        found = [{"initialize": client.ask("initialize", me)}]
        client.send("notifications/initialized")
        found += [
            {f"{method} {json.dumps(params)}" if params else method: client.ask(method, params)}
            for method, params in ASKED
        ]
        process.stdin.close()
        assert process.wait(timeout=PATIENCE) == 0
    finally:
        process.kill()
    listed = found[1]["tools/list"]["result"]["tools"]
    found[1]["tools/list"]["result"]["tools"] = [one for one in listed if one["name"] not in NATIVE_ONLY_NAMED]
    found.insert(1, {"names": [one["name"] for one in listed]})
    assert found == pinned(HERE / "mcp.json", found)


NATIVE_ONLY_NAMED = {"list_files", "file_exists", "file_info", "write_file", "delete_file"}
"""Their definitions are pinned with the public names; here one of them is enough."""


# ---- outcomes


CALLS: tuple[tuple[str, ...], ...] = (
    ("add", "--a", "3"),
    ("add", "--args-json", '{"a": null}'),
    ("greet", "--name", "Ada"),
    ("shut",),
    ("fail", "--why", "no such thing"),
    ("long",),
    ("none",),
    ("read_file", "--path", "/elsewhere/note.txt"),
)
APPROVED = ("write_file", "--path", "new.txt", "--content", "one\n", "--approval", "approve_all")
CUT = ("long", "--lines", "9000")


def test_the_json_of_outcomes(capfd: pytest.CaptureFixture[str], project: Path, environ: dict[str, str]) -> None:
    """As `forge call --json` prints them. Those that need no other mode are made in one session, since each that is
    opened starts the program's code."""
    forge = partial(run_in_process, capfd)
    trusted(forge, project, environ)
    said = forge("call", *APPROVED, "--json", cwd=project, env=environ)
    ended = {APPROVED: (said.stdout, said.returncode)}

    async def call_each() -> None:
        async with entry_session(str(project)) as session:
            for words in (CUT, *CALLS):
                code = await call_in_session(session, parse([*words, "--json"]))
                ended[words] = (capfd.readouterr().out, code)

    with mock.patch.dict(os.environ, environ, clear=True):
        asyncio.run(call_each())
    found = [
        {"forge call " + " ".join(words): settled(json.loads(ended[words][0])), "exit": ended[words][1]}
        for words in (*CALLS, APPROVED)
    ]
    outcome = settled(json.loads(ended[CUT][0]))
    found.append({"forge call long --lines 9000": {**outcome, "text": "<text>", "value": sorted(outcome["value"])}})
    assert found == pinned(HERE / "outcomes.json", found)
    assert {next(iter(one.values()))["status"] for one in found} >= {
        *("success", "execution_failed", "input_invalid", "tool_not_found"),
        *("approval_denied", "policy_denied", "sandbox_denied", "timeout"),
    }


def trusted(forge: Any, project: Path, environ: dict[str, str]) -> None:
    (project / "note.txt").write_text("a note\n")
    said = forge("trust", "--yes", cwd=project, env=environ)
    assert said.returncode == 0, said.stderr


# ---- names are literals


STATED = {
    "class": re.compile(r'^class \w+\((?:[^)"]*\w=)"([^"]+)"', re.MULTILINE),
    "decorator": re.compile(r'^@\w+\(\s*"\w+",\s*"[^"]*",\s*"(\w+)"', re.MULTILINE),
    "attribute": re.compile(r'^    \w+ = "(\w+)"$', re.MULTILINE),
    "key": re.compile(r'"(\w+)":'),
}
"""`class A(B, type="a")`, `@b("GET", "/a", "c")`, `d = "e"` in a class, `{"f": …}`."""


@pytest.fixture(scope="module")
def source() -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in sorted(SOURCE.rglob("*.py"))}


@pytest.fixture(scope="module")
def stated(source: dict[Path, str]) -> dict[str, set[str]]:
    return {form: {each for text in source.values() for each in found.findall(text)} for form, found in STATED.items()}


def test_names_of_the_web_api_are_literals(stated: dict[str, set[str]]) -> None:
    api = json.loads((HERE / "api.json").read_text(encoding="utf-8"))
    operations = {one["operationId"] for methods in api["paths"].values() for one in methods.values()}
    assert operations - stated["decorator"] == set()
    assert set(api["components"]["schemas"]) - stated["class"] - stated["key"] == set()


def test_types_of_events_are_literals(stated: dict[str, set[str]]) -> None:
    events = json.loads((HERE / "events.json").read_text(encoding="utf-8"))["events"]
    assert set(events) - stated["class"] == set()


ERRORS = """
    BindingError Busy CatalogError ConfigSyntaxError Disconnected ForgeError InputInvalid InputUnavailable JournalError
    LayoutChanged NotJson RulesUnusable SandboxError StoreError ToolDefinitionError ToolFailed ToolNotFound TooBusy
    TooMany TooManyThreads TreeError
"""
"""Exceptions whose names people and models read, as in `could not be checked (ToolDefinitionError)`."""


def test_names_of_exceptions_that_are_read_are_literals(stated: dict[str, set[str]]) -> None:
    assert set(ERRORS.split()) - stated["attribute"] == set()


def test_no_text_for_others_is_made_of_the_class_of_whatever_was_raised(source: dict[Path, str]) -> None:
    """Except in a log, and in programs that import nothing of Forge: there, no exception of Forge's can be."""
    found = []
    for file, text in source.items():
        if "golem_forge" not in text or "name__" not in text or "Exception as" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler) and node.name and catches_all(node):
                found += [f"{file.name}:{line}" for line in class_names(node, node.name)]
    assert found == []


def catches_all(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")


def class_names(handler: ast.ExceptHandler, error: str) -> list[int]:
    """Lines with `type(error).__name__`, those of log calls left out."""
    logged = {
        id(inner)
        for node in ast.walk(handler)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("_log.", "logging."))
        for inner in ast.walk(node)
    }
    return [
        node.lineno
        for node in ast.walk(handler)
        if id(node) not in logged
        and isinstance(node, ast.Attribute)
        and node.attr in ("__name__", "__qualname__")
        and error in ast.unparse(node.value)
    ]
