"""The description of the API, and the API held to it: generated requests against a real server with a real session."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.deadlines import PATIENCE

from golem_forge.events.model import REGISTRY
from golem_forge.events.serialization import Event
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.api.openapi import all_operations, openapi_document

if TYPE_CHECKING:
    from tests.ui.web.asking import Asked

pytest_plugins = ("tests.ui.web.asking",)
FEW, MANY = 1, 20
"""Generated requests of each operation and kind: in `make test`, and in `make test-long`."""
LAST = ("end_session", "log_out")
"""After these nothing else is worth asking."""


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return openapi_document("forge_1")


def test_every_operation_is_described_and_says_what_it_does(description: dict[str, Any]) -> None:
    known = {(path, method) for path, methods in description["paths"].items() for method in methods}
    operations = all_operations()
    assert known == {(one.path, one.method.lower()) for one in operations}
    assert len({one.name for one in operations}) == len(operations), "operationId must be unique"
    for one in operations:
        made = description["paths"][one.path][one.method.lower()]
        assert made["summary"].endswith((".", "?")) and len(made["summary"]) < 200, one.name
        assert {part["name"] for part in made.get("parameters", ()) if part["in"] == "path"} == set(
            re.findall(r"\{(\w+)\}", one.path)
        )
        assert (made.get("security") == []) == (one.path == "/api/login")


def test_every_reference_leads_somewhere_and_every_schema_is_one(description: dict[str, Any]) -> None:
    text = json.dumps(description)
    schemas = description["components"]["schemas"]
    for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert reference in schemas, reference
    assert [name for name in schemas if not re.fullmatch(r"[a-zA-Z0-9._-]+", name)] == []
    every = [{"$ref": f"#/components/schemas/{name}"} for name in schemas]
    jsonschema_rs.validator_for({"allOf": every, "components": {"schemas": schemas}})


def test_events_and_actions_are_described_by_the_classes_that_check_them(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    for name, kind in REGISTRY.items():
        for part in ("event", "action") if kind.ACTION else ("event",):
            data = schemas[f"{part}.{name}"]["properties"]["data"]
            assert set(data["properties"]) == {field.wire for field in kind.FIELDS}
            assert set(data["required"]) == kind.REQUIRED
    check = jsonschema_rs.validator_for({"$ref": "#/components/schemas/Event", "components": {"schemas": schemas}})
    status = Event("status", {"type": "info", "message": "x"}, seq=1, ts="t", session_id="s").to_dict()
    assert check.is_valid(status)
    assert not check.is_valid({**status, "data": {"type": "loud", "message": "x"}})
    assert not check.is_valid({**status, "data": {"type": "info"}})


def test_words_of_the_source_are_in_the_description(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    assert schemas["OutputPage"]["properties"]["next"]["description"].startswith("The `start` of the page behind")
    assert (
        "narrow to wide"
        in schemas["event.approvalRequired"]["properties"]["data"]["properties"]["choices"]["description"]
    )


async def test_everything_that_is_recorded_fits_the_description(sessions: Any, project: Path) -> None:
    asked = await sessions()
    (project / "a.txt").write_text("x")
    await asked.call("read_file", path="/workspace/a.txt")
    await asked.call("write_file", path="/workspace/b.txt", content="y\n")
    description = await asked.get("/api/openapi.json")
    schemas = description["components"]["schemas"]
    check = jsonschema_rs.validator_for({"$ref": "#/components/schemas/Event", "components": {"schemas": schemas}})
    page = await asked.get("events")
    kinds = {shown["event"]["type"] for shown in page["events"]}
    assert {"toolStarted", "toolResult", "approvalRequired", "approvalResolved"} <= kinds
    for shown in page["events"]:
        check.validate(shown["event"])


@pytest.mark.generated
async def test_no_request_at_all_ends_in_a_server_error(
    sessions: Any, project: Path, forge_home: ForgeHome, is_long: bool
) -> None:
    nowhere = {name: {"base_url": "http://127.0.0.1:9"} for name in ("anthropic", "openai", "google", "openrouter")}
    forge_home.config.write_text(json.dumps({"models": nowhere}))  # no provider is asked
    asked = await sessions()
    (project / "a.txt").write_text("x")
    await asked.call("read_file", path="/workspace/a.txt")
    handle = asked.runtime.path.outputs.keep("one\ntwo\n", asked.runtime.path.worker)
    asked.answer = {}
    waiting = asyncio.ensure_future(asked.call("write_file", path="/workspace/b.txt", content="y"))
    await asked.until(lambda: bool(asked.cards))
    real = {"id": asked.session, "handle": handle, "name": "read_file", "seq": "1"}
    real |= {"requestId": asked.cards[0]["requestId"]}
    description = await asked.get("/api/openapi.json")
    failures, statuses = await asyncio.to_thread(fuzzed, asked, description, real, MANY if is_long else FEW)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert not failures, "\n\n".join(failures)
    assert set(statuses) == {one.name for one in all_operations()}
    answered = {name for name, seen in statuses.items() if any(status < 300 for status in seen)}
    known = {"list_sessions", "list_events", "read_output", "who_am_i", "describe", "get_session", "get_question"}
    assert known <= answered


def fuzzed(
    asked: Asked, description: dict[str, Any], real: dict[str, str], examples: int
) -> tuple[list[str], dict[str, set[int]]]:
    """What did not conform, and the statuses that each operation answered with."""
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    conform = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    schema = schemathesis.openapi.from_dict(description)
    operations = {found.ok().definition.raw["operationId"]: found.ok() for found in schema.get_all_operations()}
    assert operations, "nothing to try"
    failures: list[str] = []
    statuses: dict[str, set[int]] = {name: set() for name in operations}
    address, headers = asked.served._server.address.rstrip("/"), asked.served.headers

    def tried(name: str, operation: Any, mode: Any) -> None:
        @seed(7)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), known=st.sampled_from([True, True, True, False]))
        def one(case: Any, known: bool) -> None:
            if known:
                for part in case.path_parameters or {}:
                    case.path_parameters[part] = real.get(part, case.path_parameters[part])
            answer = case.call(base_url=address, headers=headers, timeout=PATIENCE)
            statuses[name].add(answer.status_code)
            case.validate_response(answer, checks=conform)

        try:
            one()
        except Exception as error:
            failures.append(f"{name} ({mode}): {error}"[:3000])

    modes = schemathesis.GenerationMode
    for name in sorted(operations, key=lambda name: (name in LAST, name)):
        operation = operations[name]
        tried(name, operation, modes.POSITIVE)
        if operation.body or operation.query:
            tried(name, operation, modes.NEGATIVE)
    return failures, statuses


def test_the_page_lists_the_operations() -> None:
    text = (Path(__file__).parents[4] / "docs/guides/own-ui.md").read_text()
    listed = re.findall(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/[^`?]*)", text, re.MULTILINE)
    assert sorted(listed) == sorted((one.method, one.path) for one in all_operations())
