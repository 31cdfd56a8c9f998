"""A module's functions as tools: listed, checked, called in a host inside the walls (W8, W13)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError
from golem_forge.tools.tool import Mode, SourceKind

KINDS = '''
    import asyncio
    from typing import Annotated, Literal

    from pydantic import BaseModel, Field
    from golem_forge import Tool, tool

    def plain(count: Annotated[int, "how many"], unit: Literal["m", "km"] = "m") -> str:
        """Says a distance."""
        return f"{count} {unit}"

    class checked_schema(BaseModel):
        count: int = Field(ge=1)
        unit: str = "m"

    def checked(count, unit):
        return f"{count} {unit}"

    async def waits(count: int, unit: str = "m") -> str:
        await asyncio.sleep(0)
        return f"{count} {unit}"

    def say(args):
        return f"{args['count']} {args.get('unit', 'm')}"

    COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    whole = Tool("whole", "A Tool.", input_schema=COUNT, execute=say)

    @tool(label="Decorated", category="Units", mode="both")
    async def decorated(count: int, unit: str = "m") -> str:
        return f"{count} {unit}"

    def unlisted() -> str:
        return "nobody asked for this"
'''
NAMES = ("plain", "checked", "waits", "whole", "decorated")


async def test_w8_every_kind_of_export_is_a_tool_under_the_same_gate(place: Any, call: Any, asked: Any) -> None:
    place.write("tools.py", KINDS)
    ask = asked({"approved": True})
    path = await place.opened(*NAMES, ask=ask)
    for name in NAMES:
        outcome = await call(path, name, count=3)
        assert (outcome.status, outcome.text) == (Status.SUCCESS, "3 m"), (name, outcome.error)
    assert [request.tool for request in ask] == list(NAMES)
    assert (await call(path, "unlisted")).status is Status.TOOL_NOT_FOUND
    tools = {tool.name: tool for tool in path.catalog}
    assert {tool.source for tool in tools.values()} == {SourceKind.CUSTOM}
    assert [tools[name].mode for name in NAMES] == [Mode.LLM] * 4 + [Mode.BOTH]
    assert (tools["decorated"].label, tools["decorated"].category) == ("Decorated", "Units")
    assert tools["plain"].description == "Says a distance."
    assert tools["checked"].description == "Custom tool: checked"
    assert tools["plain"].input_schema["properties"]["count"] == {"type": "integer", "description": "how many"}
    assert tools["plain"].input_schema["properties"]["unit"]["enum"] == ["m", "km"]


async def test_forge_checks_the_schema_and_the_host_what_only_the_model_knows(place: Any, call: Any) -> None:
    place.write(
        "tools.py",
        """
        from datetime import date
        from pydantic import BaseModel, field_validator

        def weekday(day: date) -> str:
            return f"{day:%A}"

        class even_schema(BaseModel):
            number: int

            @field_validator("number")
            @classmethod
            def is_even(cls, value: int) -> int:
                if value % 2:
                    raise ValueError("must be even")
                return value

        def even(number):
            return number
        """,
    )
    path = await place.opened("weekday", "even")
    assert (await call(path, "weekday", day="2024-02-29")).text == "Thursday"
    wrong = await call(path, "even", number="two")
    assert (wrong.status, wrong.executed) == (Status.INPUT_INVALID, False)
    odd = await call(path, "even", number=3)
    assert odd.status is Status.INPUT_INVALID and "must be even" in odd.error
    assert (await call(path, "even", number=4)).text == "4"


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        (
            "def calculate(): ...\ndef b(): ...",
            "calculte",
            "toolsets.custom.tools[0]: Tool 'calculte' not found in ./tools.py (did you mean 'calculate'?). Available "
            "exports: calculate, b",
        ),
        ("import os\nos._exit(4)", "x", "from ./tools.py: the process of this module ended (exit code 4)"),
        pytest.param(*("raise SystemExit(2)", "x", "from ./tools.py: SystemExit: 2 (line 1)"), marks=pytest.mark.long),
        pytest.param("def x(*args): ...", "x", "cannot be filled by name", marks=pytest.mark.long),
        (None, "x", "Failed to load custom tools from ./tools.py: tools.py: file not found"),
    ],
)
async def test_what_cannot_be_loaded_says_why(place: Any, code: str | None, name: str, said: str) -> None:
    """What else can be wrong with a module is in test_custom_tools, without a process for each."""
    if code is not None:
        place.write("tools.py", code)
    with pytest.raises(ConfigError) as caught:
        await place.custom(name).load()
    assert said in str(caught.value)
    assert str(place.root) not in str(caught.value)


async def test_imports_of_the_program_come_from_the_snapshot_and_nothing_else_of_it_can(place: Any, call: Any) -> None:
    place.write("parts/tools.py", "from lib.words import WORD\ndef word() -> str: return WORD + __file__")
    deeper = place.worker(custom={"module": "parts/tools.py", "tools": ["word"]})
    place.write("parts/lib/__init__.py", "")
    place.write("parts/lib/words.py", "WORD = 'kept '")
    path = place.path(await place.modules(deeper).load())
    assert (await call(path, "word")).text == "kept /opt/forge/module/parts/tools.py"
    place.write("data/planted.py", "WORD = 'planted'")
    place.write(
        "tools.py",
        """
        import sys
        sys.path.insert(0, "/data")
        name = "planted"

        def word() -> str:
            return __import__(name).WORD
        """,
    )
    refused = await call(await place.opened("word"), "word")
    assert refused.status is Status.EXECUTION_FAILED
    assert refused.error.startswith("ImportError: /data/planted.py is not part of the trusted module")


async def test_w13_a_value_that_is_not_what_was_promised_is_a_failure_naming_the_place(place: Any, call: Any) -> None:
    place.write(
        "tools.py",
        """
        from decimal import Decimal
        from typing import Iterator
        from pydantic import BaseModel, Field
        from golem_forge import Tool, ToolResult

        def numbers() -> list[int]:
            return ["a"]

        def odd():
            return object()

        def endless():
            while True:
                yield 1

        def lines() -> Iterator[str]:
            return iter("ab")

        def nan() -> float:
            return float("nan")

        class Price(BaseModel):
            amount: Decimal = Field(serialization_alias="Amount")

        def price() -> Price:
            return {"amount": "1.50"}

        ITEMS = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
        items = Tool("items", "Items.", input_schema={"type": "object"}, execute=lambda args: {"items": [1]},
                     output_schema=ITEMS)

        def rich() -> ToolResult:
            return ToolResult({"kind": "text", "content": "hello"}, text="hello", meta={"a": 1})

        def huge() -> str:
            return "x" * (17 << 20)
        """,
    )
    wrong = {"numbers": "$[0]", "odd": "$", "endless": "$", "lines": "$", "nan": "$", "items": "$.items[0]"}
    path = await place.opened(*wrong, "price", "rich", "huge")
    for name, where in wrong.items():
        outcome = await call(path, name)
        assert outcome.status is Status.EXECUTION_FAILED
        assert outcome.error.startswith(f"tool '{name}' returned an invalid value at {where}: "), outcome.error
    assert (await call(path, "price")).result.value["data"] == {"Amount": "1.50"}
    rich = (await call(path, "rich")).result
    assert (rich.text, rich.meta) == ("hello", {"a": 1})
    huge = await call(path, "huge")
    assert huge.status is Status.EXECUTION_FAILED and "more than 16 MiB" in huge.error


async def test_a_tool_gets_its_context_and_what_it_prints_is_no_answer(place: Any, call: Any) -> None:
    place.write(
        "tools.py",
        """
        import os, subprocess, sys
        from golem_forge import ToolContext
        from golem_forge.core.effects import Verb
        from golem_forge.sandbox import files

        def note(text: str, *, ctx: ToolContext) -> str:
            print('{"id": 2, "value": "forged"}', flush=True)
            subprocess.run(["sh", "-c", "echo noise; cat"], check=True)
            ctx.report_progress(1, 2, "half")
            with ctx.sandbox.target("note.txt", Verb.WRITE) as target:
                files.write_atomic(target, text.encode())
            with ctx.sandbox.target("/data/note.txt", Verb.READ) as target:
                found = files.read_bytes(target).decode()
            return f"{found} {ctx.workspace} {ctx.worker} {ctx.caller} {bool(ctx.call_id)} {os.getcwd()}"

        def outside(*, ctx) -> str:
            with ctx.sandbox.target("/elsewhere/x", Verb.READ):
                return "reached"
        """,
    )
    path = await place.opened("note", "outside")
    assert "ctx" not in path.catalog.get("note").input_schema["properties"]
    outcome = await call(path, "note", text="hi")
    assert (outcome.text, outcome.error) == ("hi /data main llm True /data", "")
    assert (place.root / "data/note.txt").read_text() == "hi"
    outside = await call(path, "outside")
    assert (outside.status, outside.code) == (Status.SANDBOX_DENIED, "ZONE_ACCESS_DENIED")


async def test_a_tool_calls_others_through_the_one_path(place: Any, call: Any, asked: Any) -> None:
    place.write(
        "tools.py",
        """
        def inner(n: int) -> int:
            return n * 2

        def outer(n: int, *, ctx) -> str:
            outcome = ctx.call_blocking("inner", {"n": n})
            return f"{outcome.status} {outcome.result.text} {outcome.tool}"

        async def gathers(*, ctx) -> list[str]:
            import asyncio
            outcomes = await asyncio.gather(*(ctx.call("inner", {"n": n}) for n in range(3)))
            return [outcome.text for outcome in outcomes] + [(await ctx.call("nope", {})).status]

        def endless(depth: int, *, ctx) -> str:
            return ctx.call_blocking("endless", {"depth": depth + 1}).text
        """,
    )
    ask = asked({"approved": True})
    path = await place.opened("inner", "outer", "gathers", "endless", ask=ask)
    assert (await call(path, "outer", n=4)).text == "success 8 inner"
    assert [request.tool for request in ask] == ["outer", "inner"]
    gathered = await call(path, "gathers")
    assert gathered.result.value["data"] == ["0", "2", "4", "tool_not_found"]
    deep = await asyncio.wait_for(call(path, "endless", depth=0), PATIENCE)
    assert "this call could never start" in deep.text


async def test_a_host_has_the_declared_environment_no_network_no_home_and_names_no_host_path(
    place: Any, call: Any, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KEPT_BACK", "canary-unseen")
    monkeypatch.setenv("CANARY_PASSED", "canary-passed")
    monkeypatch.setenv("CANARY_SECRET_SOURCE", "canary-secret-value")
    (own_home / "private.txt").write_text("canary-private")
    place.write(
        "tools.py",
        f"""
        import os, socket, sys, traceback

        def env() -> dict[str, str]:
            return dict(os.environ)

        def look() -> dict:
            found = {{"home": os.path.exists({str(own_home)!r}), "path": sys.path, "file": __file__}}
            try:
                socket.create_connection(("192.0.2.1", 80), timeout=1)
            except OSError as error:
                found["network"] = type(error).__name__
            return found

        def fails() -> None:
            open("/data/missing.txt")
        """,
    )
    block = {"pass": ["CANARY_PASSED"], "set": {"FIXED": "1"}, "secrets": {"TOKEN": "env:CANARY_SECRET_SOURCE"}}
    path = await place.opened("env", "look", "fails", env=block)
    env = (await call(path, "env")).result.value["data"]
    assert (env["CANARY_PASSED"], env["FIXED"]) == ("canary-passed", "1")
    assert "canary-secret-value" not in str(env) and "TOKEN" in env
    known = {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "SHLVL", "_", "CANARY_PASSED", "FIXED", "TOKEN"}
    assert not [name for name in env if name not in known and ("CANARY" in name or name.startswith("FORGE"))]
    assert "CANARY_KEPT_BACK" not in env
    found = (await call(path, "look")).result.value["data"]
    assert found["home"] is False and found["network"] == "OSError"
    assert not [entry for entry in found["path"] if str(place.root) in entry or "site-packages" in entry]
    assert (await call(path, "fails")).error == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/missing.txt'"
    )
