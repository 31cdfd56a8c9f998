"""A person without a model: setup on the terminal, `forge models`, and keys that stay where they belong."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

import pexpect
import pytest
from tests.acceptance.mcp_bench import McpBench, settled
from tests.acceptance.user_tools import Bench
from tests.deadlines import PATIENCE
from tests.wire.grammar import refuse_or
from tests.wire.server import WireCall, WireRequest, WireServer, WireTurn

from golem_forge.agent.model.text_calls import example_arguments
from golem_forge.tools.schema import bare_schema, model_schema

Desks = Callable[..., Any]
KEY = "canary-key-0451-abcdef"
ESC = "\x1b"


@pytest.fixture
def desk(desk_here: Desks) -> Desks:
    return desk_here


@pytest.fixture
def provider() -> Iterator[WireServer]:
    """Anthropic's format, one key that is right, two models."""
    with WireServer(lambda request: WireTurn(say="OK, here I am.")) as server:
        server.key, server.models = KEY, ("claude-other", "claude-small")
        yield server


def own_config(desk: Any, server: WireServer, more: str = "") -> None:
    desk.home.mkdir(parents=True, exist_ok=True)
    text = f"# mine\nmodels:\n  anthropic: {{base_url: '{server.base_url('anthropic')}'}}  # near\n{more}"
    (desk.home / "config.yaml").write_text(text)


def on_terminal(place: Any, *words: str) -> pexpect.spawn:
    env = place.environ | {"TERM": "xterm-256color"}
    return place.ready.expecting(words, cwd=str(place.root), env=env, encoding="utf-8", timeout=PATIENCE, echo=False)


def everything_written(place: Any) -> str:
    files = [path for path in place.home.rglob("*") if path.is_file() and "model_keys" not in path.parts]
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


def test_the_first_forge_sets_a_model_up_and_the_next_one_uses_it(desk: Desks, provider: WireServer) -> None:
    place = desk({})
    own_config(place, provider)
    child = on_terminal(place)
    seen = []

    def answer(question: str, text: str) -> None:
        child.expect(question)
        seen.append(child.before)
        child.send(text)

    answer("no model for now: use only tools[^$]*Number", "1\r")
    answer("Paste the key", "canary-wrong-key\r")
    child.expect("refused the key")
    answer("Paste the key", f"{KEY}\r")
    answer("Number or name", "2\r")
    child.expect("claude-small answers, and is your default")
    child.expect("claude-small")  # the line below the prompt
    child.send("hello\r")
    child.expect("here I am")
    child.send("\x04")
    child.expect(pexpect.EOF)
    assert KEY not in "".join([*seen, child.before]) and "canary-wrong-key" not in "".join(seen)
    config = (place.home / "config.yaml").read_text()
    assert "model: anthropic:claude-small\n" in config and config.startswith("# mine\n") and "# near" in config
    [kept] = (place.home / "state" / "model_keys").glob("model-*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and KEY in kept.read_text()
    assert KEY not in everything_written(place)
    ran = place.forge("run", "hi")
    assert (ran.code, ran.out) == (0, "OK, here I am.\n"), ran.err


@pytest.mark.parametrize(
    ("keys", "again"),
    [(ESC, True), pytest.param("\x03", True, marks=pytest.mark.long), ("6\r", False)],
    ids=["esc", "ctrl-c", "later"],
)
def test_leaving_setup_changes_nothing_and_the_session_opens(desk: Desks, keys: str, again: bool) -> None:
    place = desk({})
    for time in range(2):
        child = on_terminal(place)
        if time == 0 or again:
            child.expect("Number")
            child.send(keys)
        child.expect("No model yet: `forge models setup` chooses one")
        child.expect("/tools")
        child.send("\x04")
        child.expect(pexpect.EOF)
    assert not (place.home / "config.yaml").exists() and not (place.home / "state" / "model_keys").exists()


def test_nobody_is_asked_where_no_person_is(desk: Desks) -> None:
    ran = desk({}).forge("run", "hi")
    assert ran.code == 5 and "no model is configured" in ran.err
    ran = desk({}, name="b").forge("models", "setup")
    assert ran.code == 2 and "needs a terminal" in ran.err


def test_a_stored_key_goes_only_to_the_address_for_which_it_was_stored(desk: Desks, provider: WireServer) -> None:
    """Not even a project that the person trusts can have it sent elsewhere."""
    from golem_forge.agent.model.selection import ModelKeys
    from golem_forge.storage.home import ForgeHome

    with WireServer(lambda request: WireTurn(say="stolen")) as thief:
        place = desk({"forge.yaml": f"models: {{anthropic: {{base_url: '{thief.base_url('anthropic')}'}}}}\n"})
        own_config(place, provider, "model: anthropic:claude-small\n")
        ModelKeys(ForgeHome(place.home)).save("anthropic", provider.base_url("anthropic"), KEY)
        ran = place.forge("run", "hi")
        assert (ran.code, ran.out) == (0, "OK, here I am.\n"), "not trusted: its address does not count"
        place.trust()
        ran = place.forge("run", "hi")
        assert ran.code == 5 and "is for another address" in ran.err and KEY not in ran.err
        ran = place.forge("models", "test")
        assert ran.code == 5 and KEY not in ran.err
        assert thief.requests == [] and thief.lists == []
        ran = place.forge("run", "hi", ANTHROPIC_API_KEY="canary-of-the-environment")
        assert ran.out == "stolen\n" and "canary-of-the-environment" in str(thief.requests[0].headers)


def test_models_lists_sets_tests_and_forgets(desk: Desks, provider: WireServer) -> None:
    from golem_forge.agent.model.selection import ModelKeys
    from golem_forge.storage.home import ForgeHome

    place = desk({}, OPENAI_API_KEY="canary-openai-1")
    own_config(place, provider)
    assert place.forge("models", "test", "anthropic:claude-small").code == 5
    ModelKeys(ForgeHome(place.home)).save("anthropic", provider.base_url("anthropic"), KEY)
    ran = place.forge("models", "set", "anthropic:claude-small")
    assert ran.code == 0 and "is your default now" in ran.out
    listed = json.loads(place.forge("models", "--json").out)
    assert listed["model"]["name"] == "anthropic:claude-small" and "config.yaml" in listed["model"]["from"]
    keys = {each["name"]: each["key"] for each in listed["providers"]}
    assert (keys["anthropic"], keys["openai"], keys["google"], keys["ollama"]) == (
        "file",
        "environment",
        "none",
        "not needed",
    )
    text = place.forge("models")
    assert "Model here: anthropic:claude-small" in text.out and "canary" not in text.out
    assert place.forge("models", "test").out == "anthropic:claude-small answers.\n"
    assert place.forge("models", "forget", "anthropic").code == 0
    assert place.forge("models", "forget", "anthropic").code == 4
    assert place.forge("models", "forget", "antropic").code == 4
    assert place.forge("models", "set", "gork:1").code == 2
    assert place.forge("models", "sett").code == 2


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (WireTurn(status=401), "refused the key"),
        (WireTurn(status=404), "does not know the model 'claude-small'"),
        (None, "cannot be reached"),
    ],
    ids=["key", "model", "network"],
)
def test_a_failed_test_says_what_is_wrong(desk: Desks, turn: WireTurn | None, says: str) -> None:
    with WireServer([turn] if turn else []) as server:
        place = desk({}, ANTHROPIC_API_KEY=KEY)
        own_config(place, server)
        if turn is None:
            (place.home / "config.yaml").write_text("models: {anthropic: {base_url: 'http://127.0.0.1:9'}}\n")
        ran = place.forge("models", "test", "anthropic:claude-small")
    assert ran.code == 5 and says in ran.err and KEY not in ran.err


FIRST, SECOND = "anthropic:claude-a", "openai-compatible:local-b"
FAILURES = {
    "the key is refused": [WireTurn(status=401)],
    "the model is unknown": [WireTurn(status=404)],
    "every try fails": [WireTurn(status=500, headers={"retry-after": "0"})] * 4,
    "it breaks off while it speaks": [WireTurn(say="half of a sentence", cut="abrupt"), WireTurn(status=403)],
}


def fallback_config(first: WireServer, second: WireServer) -> str:
    return (
        f"models: {{anthropic: {{base_url: '{first.base_url('anthropic')}'}}, "
        f"openai-compatible: {{base_url: '{second.base_url('openai-compatible')}'}}}}\n"
        f"pricing:\n  {FIRST}: {{input: 1000, output: 1000}}\n  {SECOND}: {{input: 1, output: 1}}\n"
    )


@pytest.mark.parametrize(
    "failure",
    [
        "the key is refused",
        pytest.param("the model is unknown", marks=pytest.mark.long),
        pytest.param("every try fails", marks=pytest.mark.long),
        "it breaks off while it speaks",
    ],
)
def test_the_next_model_answers_when_the_first_failed(desk: Desks, failure: str) -> None:
    with (
        WireServer(FAILURES[failure]) as first,
        WireServer([WireTurn(say="The second speaks.", input=1000, output=1000)]) as second,
    ):
        worker = f"---\nname: main\nmodel: [{FIRST}, {SECOND}]\n---\nHelp.\n"
        place = desk({"main.worker": worker}, ANTHROPIC_API_KEY=KEY)
        place.home.mkdir()
        (place.home / "config.yaml").write_text(fallback_config(first, second))
        ran = place.forge("run", "--json", "hi")
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert (len(first.requests), len(second.requests)) == (len(FAILURES[failure]), 1)
    told = [each["data"]["message"] for each in events if each.get("data", {}).get("code") == "MODEL_FALLBACK"]
    assert len(told) == 1 and f"{SECOND} answers instead" in told[0] and KEY not in ran.out + ran.err
    updates = [each["data"]["model"] for each in events if each.get("type") == "workerUpdate"]
    assert updates[0] == FIRST and updates[-1] == SECOND
    said = [each["data"]["message"] for each in events if each.get("type") == "message"]
    assert [each["content"] for each in said if each["role"] == "assistant"] == ["The second speaks."]
    streamed = [each["data"] for each in events if each.get("type") == "streaming"]
    kept = {each["requestId"] for each in streamed if each["delta"]} - {
        each["requestId"] for each in streamed if each.get("discarded")
    }
    assert "half" not in "".join(each["delta"] for each in streamed if each["requestId"] in kept)
    cost = [each["data"] for each in events if each.get("type") == "usageUpdated"][-1]
    assert "0.002" in json.dumps(cost), "2,000 tokens at the second model's price"


@pytest.mark.parametrize(
    ("files", "words", "says"),
    [
        ({"forge.yaml": f"model: [{FIRST}, gork:1]\n"}, [], "unknown model provider 'gork'"),
        ({"forge.yaml": "model: []\n"}, [], "`provider:name`, or a list of them"),
        ({}, ["--model", f"{FIRST},"], "is not `provider:name`"),
        (
            {"main.worker": "---\nname: main\ncompatible_models: ['anthropic:*']\n---\nHelp.\n"},
            ["--model", f"{FIRST},{SECOND}"],
            f"cannot use model '{SECOND}'",
        ),
    ],
    ids=["provider", "empty", "comma", "compatible"],
)
def test_every_model_of_a_list_is_checked_before_anything_runs(
    desk: Desks, files: dict[str, str], words: list[str], says: str
) -> None:
    ran = desk(files, ANTHROPIC_API_KEY=KEY).forge("run", *words, "hi")
    assert ran.code == 2 and says in ran.err


def test_a_list_whose_first_model_has_no_key_starts_with_the_next(desk: Desks) -> None:
    with WireServer([WireTurn(say="The second speaks.")]) as second:
        place = desk({})
        place.home.mkdir()
        (place.home / "config.yaml").write_text(f"model: [{FIRST}, {SECOND}]\n" + fallback_config(second, second))
        ran = place.forge("run", "hi")
        assert (ran.code, ran.out) == (0, "The second speaks.\n"), ran.err


def test_a_server_that_compiles_schemas_into_a_grammar_takes_every_tool(desk: Desks) -> None:
    """llama.cpp answers 400 to a request in which one string may have 2,000 characters; our own check still refuses
    what is longer."""
    plan = {"plan": [{"step": "look", "status": "pending"}], "explanation": "x" * 2001}
    turns = iter([WireTurn(calls=(WireCall(name="update_plan", args=plan),)), WireTurn(say="Shorter next time.")])
    with WireServer(lambda request: refuse_or(request, next(turns))) as server:
        place = desk({})
        place.home.mkdir()
        block = f"{{openai-compatible: {{base_url: '{server.base_url('openai-compatible')}'}}}}"
        (place.home / "config.yaml").write_text(f"models: {block}\nmodel: openai-compatible:local\n")
        ran = place.forge("run", "plan it")
    assert (ran.code, ran.out) == (0, "Shorter next time.\n"), ran.err
    sent = {tool["function"]["name"]: tool["function"]["parameters"] for tool in server.requests[0].body["tools"]}
    assert "2000" not in json.dumps(sent["update_plan"]), "the bound is ours, and leaves no word on the wire"
    [call] = place.calls()
    assert call.status == "input_invalid" and "explanation" in call.error
    told = [message for message in server.requests[1].body["messages"] if message["role"] == "tool"]
    assert "explanation" in json.dumps(told) and "2000" in json.dumps(told)


PARAMETERS = [
    {"name": "word", "type": "string", "description": "d", "required": True},
    {"name": "count", "type": "integer", "description": "d", "min": 1, "max": 9},
    {"name": "share", "type": "number", "description": "d"},
    {"name": "loud", "type": "boolean", "description": "d"},
    {"name": "kind", "type": "string", "description": "d", "enum": ["a", "b"]},
    {"name": "words", "type": "array", "items": "string", "description": "d"},
]
BOUNDED_SERVER_TOOL = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 5000, "pattern": "^(a|b){1,4000}$"},
        "many": {"type": "array", "items": {"$ref": "#/$defs/one"}, "maxItems": 3000},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["text"],
    "$defs": {"one": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 64}}}},
}


@pytest.mark.walls
async def test_a_converter_makes_a_grammar_of_every_tool_that_a_model_is_sent(mcp_bench: McpBench) -> None:
    """Native tools, those of a server and of the person: as they are sent, and as they are sent after a refusal. What
    the converter makes takes arguments that the tool takes."""
    build_regex = pytest.importorskip("outlines_core.json_schema").build_regex_from_schema
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py")})
    mcp_bench.trust()
    mcp_bench.approve()
    tools = Bench(mcp_bench.root / "beside")
    tools.tools = mcp_bench.home.path / "tools"
    tools.tool("count-words", "echo 1\n", parameters=PARAMETERS)
    made = mcp_bench.forge("tools", "activate", "count-words", "--yes")
    assert made.code == 0, made.err
    async with mcp_bench.session() as session:
        await settled(session, "echo")
        schemas = {tool.name: tool.input_schema for tool in session.catalog}
    assert {"run_code", "exec_command", "create_custom_tool", "count-words", "echo__add"} <= schemas.keys()
    schemas["a server's tool with bounds"] = BOUNDED_SERVER_TOOL
    for name, schema in schemas.items():
        example = example_arguments(schema)
        assert example is not None, name
        bare = bare_schema(schema)
        typed = all(part.get("type") for part in bare["properties"].values())  # a part without type is any value
        for sent in (model_schema(schema), bare) if typed else (model_schema(schema),):
            grammar = build_regex(json.dumps(sent))
            assert re.fullmatch(grammar, json.dumps(in_order(example, sent))), (name, sent)


def in_order(example: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A grammar wants the properties in the order of their schema."""
    return {name: example[name] for name in schema.get("properties", ()) if name in example}


CHOOSY = """\
from typing import Union

def pick(what: Union[int, str]) -> str:
    "Pick one."
    return f"picked {what}"

def plain(name: str) -> str:
    "Greet."
    return name
"""
WITH_MODULE = """\
---
name: main
model: openai-compatible:local
toolsets:
  custom:
    module: ./tools.py
    tools: [pick, plain]
    approval: {default: preApproved}
---
Help.
"""


REFUSED = WireTurn(status=400, error="Failed to initialize samplers: failed to parse grammar")


def accepted(request: WireRequest) -> bool:
    return '"anyOf"' not in json.dumps(request.body.get("tools", ()))


def with_local(place: Any, server: WireServer) -> Any:
    place.home.mkdir(exist_ok=True)
    block = f"{{openai-compatible: {{base_url: '{server.base_url('openai-compatible')}'}}}}"
    (place.home / "config.yaml").write_text(f"models: {block}\n")
    return place


def test_a_refused_schema_is_told_with_its_tool_and_asked_once_more_without_it(desk: Desks) -> None:
    turns = iter([WireTurn(calls=(WireCall(name="pick", args={"what": "7"}),)), WireTurn(say="Seven it is.")])
    with WireServer(lambda request: next(turns) if accepted(request) else REFUSED) as server:
        place = with_local(desk({"main.worker": WITH_MODULE, "tools.py": CHOOSY, "forge.yaml": ""}), server)
        place.trust()
        ran = place.forge("run", "--json", "pick")
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    [told] = [each["data"]["message"] for each in events if each.get("data", {}).get("code") == "SCHEMA_REFUSED"]
    assert "failed to parse grammar" in told and "tool 'pick'" in told and "plain schemas" in told
    assert events[-1]["data"]["response"] == "Seven it is."
    assert [accepted(request) for request in server.requests] == [False, True, True], "the next one needs no refusal"
    [call] = place.calls()
    assert call.tool == "pick" and call.status == "success"


def test_where_bare_schemas_are_refused_too_the_error_names_the_tool(desk: Desks) -> None:
    with WireServer(lambda request: WireTurn(status=400, error="tools[2].function: invalid schema")) as server:
        place = with_local(desk({"main.worker": WITH_MODULE, "tools.py": CHOOSY, "forge.yaml": ""}), server)
        place.trust()
        ran = place.forge("run", "pick")
    assert ran.code == 5 and "the schema of tool 'plain'" in ran.err, ran.err
    assert len(server.requests) == 2


def test_the_first_request_of_the_built_in_worker_is_small(desk: Desks) -> None:
    """At 25 tokens a second a local model reads 2,500 tokens in 100 s. The rest of the room is for tools to come."""
    with WireServer([WireTurn(say="Hello.")]) as server:
        place = with_local(desk({}), server)
        ran = place.forge("run", "-m", "openai-compatible:local", "-a", "approve_all", "hello")
    assert ran.code == 0, ran.err
    body = server.requests[0].body
    assert len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()) / 3.5 < 2_500
    offered = {tool["function"]["name"] for tool in body["tools"]}
    assert {"read_file", "write_file", "apply_patch", "exec_command", "grep_files", "tool_search"} <= offered


@pytest.mark.parametrize(("context", "compact"), [(8_192, True), (32_768, False)])
def test_a_model_with_little_room_gets_a_compact_request(desk: Desks, context: int, compact: bool) -> None:
    """Chosen from the context that the server names; what is not sent waits behind tool_search, and can be called."""
    plan = WireCall(name="update_plan", args={"plan": [{"step": "look", "status": "pending"}]})
    with WireServer([WireTurn(calls=(plan,)), WireTurn(say="Planned.")]) as server:
        server.facts = {"/v1/models": {"data": [{"id": "local", "max_model_len": context}]}}
        place = with_local(desk({}), server)
        ran = place.forge("run", "-m", "openai-compatible:local", "-a", "approve_all", "plan it")
    assert (ran.code, ran.out) == (0, "Planned.\n"), ran.err
    body = server.requests[0].body
    sent = {tool["function"]["name"]: tool["function"] for tool in body["tools"]}
    assert {"read_file", "write_file", "apply_patch", "exec_command", "grep_files", "tool_search"} <= sent.keys()
    assert {name in sent for name in ("run_code", "update_plan", "read_output")} == {not compact}
    assert ("run_code" in sent["tool_search"]["description"]) is compact, "the model knows that it is there"
    assert ("create_custom_tool" in body["messages"][0]["content"]) is not compact
    if compact:
        assert len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()) / 3.5 < 1_550
    [call] = place.calls()
    assert (call.tool, call.status) == ("update_plan", "success")


@pytest.mark.parametrize("tool_format", ["native", pytest.param("xml", marks=pytest.mark.long)])
def test_a_small_model_that_writes_its_call_as_text_is_understood(desk: Desks, tool_format: str) -> None:
    written = '```json\n{"name": "read_file", "arguments": {"path": "note.txt"}}\n```'
    with WireServer([WireTurn(say=written), WireTurn(say="It says hello.")]) as server:
        worker = f"---\nname: main\ntool_format: {tool_format}\ntoolsets: {{filesystem: {{}}}}\n"
        worker += "sandbox: {zones: [{name: workspace}]}\n---\nHelp.\n"
        place = with_local(desk({"main.worker": worker, "note.txt": "hello\n", "forge.yaml": FOLDER}), server)
        ran = place.forge("run", "-t", "normal", "-m", "openai-compatible:local", "what does note.txt say?")
    assert (ran.code, ran.out) == (0, "It says hello.\n"), ran.err
    assert "wrote its call as text; taken as a call of read_file" in ran.err and '"arguments"' not in ran.err
    [call] = place.calls()
    assert (call.tool, call.status) == ("read_file", "success")
    sent = server.requests[1].body["messages"]
    assert "hello" in json.dumps(sent)
    before = next(each for each in sent if each["role"] == "assistant")
    if tool_format == "native":
        assert before["tool_calls"][0]["function"]["name"] == "read_file", "the model sees its call in the right form"
    else:
        assert before["content"].startswith("<tool><tool_name>read_file</tool_name>")


def test_a_small_model_that_claims_what_no_call_did_is_asked_once(desk: Desks) -> None:
    call = '```json\n{"name": "write_file", "arguments": {"path": "x.txt", "content": "x"}}\n```'
    claim = f"I wrote the file.\n**Result:** saved.\n\n{call}"
    with WireServer([WireTurn(say=claim), WireTurn(say=call), WireTurn(say=claim), WireTurn(say=claim)]) as server:
        place = with_local(desk({}), server)
        ran = place.forge("run", "-a", "approve_all", "-m", "openai-compatible:local", "write x.txt")
    assert (ran.code, ran.out, (place.root / "x.txt").read_text()) == (0, f"{claim}\n", "x"), ran.err
    assert len(server.requests) == 3, "its second claim is its answer"
    asked = server.requests[1].body["messages"][-1]["content"]
    assert asked.startswith("Nothing was run: your message ends with a call of write_file behind other words.")
    assert [(each.tool, each.status) for each in place.calls()] == [("write_file", "success")]


def test_a_small_model_that_calls_what_is_no_tool_reads_which_there_are(desk: Desks) -> None:
    claim = 'I wrote the file.\n\n```json\n{"name": "save", "arguments": {"path": "x.txt"}}\n```'
    with WireServer([WireTurn(say=claim), WireTurn(say="I cannot.")]) as server:
        place = with_local(desk({}), server)
        ran = place.forge("run", "-m", "openai-compatible:local", "write x.txt")
    asked = server.requests[1].body["messages"][-1]["content"]
    assert ran.out == "I cannot.\n" and "there is no such tool; yours are " in asked and ", grep_files" in asked


def test_calls_in_xml_are_read_as_a_small_model_writes_them(desk: Desks) -> None:
    """The words are those of Qwen2.5-Coder-1.5B: half of the name's tags, and results that it makes up."""
    one, two = (
        f"<tool>read_file</tool_name><arguments><path>{name}</path></arguments></tool>" for name in ("a.txt", "b.txt")
    )
    turns = [
        WireTurn(say=f"{one}\n{two}\n<tool_result>\nL1: 1\nL2: 2\nL3: 3"),
        WireTurn(say="read_file(a.txt)"),
        WireTurn(say="<read_file>b.txt</read_file>"),
        WireTurn(say="5555"),
    ]
    with WireServer(turns) as server:
        worker = "---\nname: main\ntool_format: xml\ntoolsets: {filesystem: {}}\n"
        worker += "sandbox: {zones: [{name: workspace}]}\n---\nHelp.\n"
        files = {"main.worker": worker, "a.txt": "1234\n", "b.txt": "4321\n", "forge.yaml": FOLDER}
        place = with_local(desk(files), server)
        ran = place.forge("run", "-m", "openai-compatible:local", "what is the sum of a.txt and b.txt?")
    assert (ran.code, ran.out) == (0, "5555\n"), ran.err
    assert [(call.tool, call.status) for call in place.calls()] == [("read_file", "success")] * 4
    assert server.requests[0].body["stop"] == ["<tool_result"]
    before, results = server.requests[1].body["messages"][-2:]
    assert before["content"] == f"{one}\n{two}\n", "nothing of what it made up"
    assert "1234" in results["content"] and "4321" in results["content"]


SMALL = {"/v1/models": {"data": [{"id": "local", "max_model_len": 8_192}]}}
READ_NOTE = WireCall(name="read_file", args={"path": "note.txt"})
MISREAD = WireCall(name="read_file", args={"path": "notes.txt"})


@pytest.mark.parametrize(
    ("turns", "question", "answer"),
    [
        (
            [WireTurn(say="It says bye."), WireTurn(calls=(READ_NOTE,)), WireTurn(say="It says hello.")],
            "You have called no tool, so nothing is read",
            "It says hello.",
        ),
        (
            [
                WireTurn(calls=(MISREAD,)),
                WireTurn(say="There is none."),
                WireTurn(calls=(READ_NOTE,)),
                WireTurn(say="It says hello."),
            ],
            "None of your calls has worked, so nothing is read",
            "It says hello.",
        ),
        (
            [WireTurn(say="It says bye."), WireTurn(say="no call")],
            "You have called no tool, so nothing is read",
            "It says bye.",
        ),
        ([WireTurn(calls=(READ_NOTE,)), WireTurn(say="It says hello.")], "", "It says hello."),
    ],
    ids=["no call", "a failed call", "it means it", "a call"],
)
def test_a_small_model_that_called_nothing_is_asked_once(
    desk: Desks, turns: list[WireTurn], question: str, answer: str
) -> None:
    with WireServer(turns) as server:
        server.facts = SMALL
        place = with_local(desk({"note.txt": "hello\n"}), server)
        ran = place.forge("run", "-m", "openai-compatible:local", "what does note.txt say?")
        notes = [
            each["content"]
            for each in server.requests[-1].body["messages"]
            if each["role"] == "user" and " so nothing is read" in each["content"]
        ]
    assert (ran.code, ran.out, len(server.requests)) == (0, f"{answer}\n", len(turns)), ran.err
    assert [each[: len(question)] for each in notes] == ([question] if question else [])


def test_a_small_model_is_not_asked_for_more_after_a_refusal_and_no_other_model_is_asked(desk: Desks) -> None:
    write = WireCall(name="write_file", args={"path": "x.txt", "content": "x"})
    place = desk({})
    with WireServer([WireTurn(calls=(write,)), WireTurn(say="I may not.")]) as server:
        server.facts = SMALL
        ran = with_local(place, server).forge("run", "-m", "openai-compatible:local", "write")
    assert (ran.out, len(server.requests)) == ("I may not.\n", 2), ran.err
    with WireServer([WireTurn(say="Hello.")]) as server:
        ran = with_local(place, server).forge("run", "-m", "openai-compatible:local", "hello")
    assert (ran.out, len(server.requests)) == ("Hello.\n", 1), ran.err


FOLDER = "sandbox: {zones: {workspace: {path: ., mode: rw}}}\n"


def test_a_call_written_as_text_is_judged_like_every_call(desk: Desks) -> None:
    written = '{"name": "write_file", "arguments": {"path": "x.txt", "content": "x"}}'
    with WireServer([WireTurn(say=written), WireTurn(say="I may not.")]) as server:
        place = with_local(desk({}), server)
        ran = place.forge("run", "-m", "openai-compatible:local", "write")
    assert (ran.code, ran.out) == (0, "I may not.\n"), ran.err
    assert [(call.tool, call.status) for call in place.calls()] == [("write_file", "approval_denied")]
    assert not (place.root / "x.txt").exists()


@pytest.mark.long
def test_setup_takes_another_address_and_asks_for_the_key_that_it_wants(desk: Desks, provider: WireServer) -> None:
    provider.models = ("qwen",)
    place = desk({})
    child = on_terminal(place, "models", "setup")
    child.expect("another address[^$]*Number")
    child.send("5\r")
    child.expect("Address, like")
    child.send(f"{provider.url.removeprefix('http://')}\r")
    child.expect("refused the key")
    child.expect("Key of this server")
    child.send(f"{KEY}\r")
    child.expect("Number or name")
    child.send("\r")
    child.expect("openai-compatible:qwen answers")
    child.expect(pexpect.EOF)
    assert f"base_url: {provider.url}/v1" in (place.home / "config.yaml").read_text()
    assert KEY not in everything_written(place)
    ran = place.forge("run", "hello")
    assert (ran.code, ran.out) == (0, "OK, here I am.\n"), ran.err


def test_models_set_asks_for_an_address_that_nobody_said(desk: Desks, provider: WireServer) -> None:
    provider.key, provider.models = "", ("qwen",)
    place = desk({})
    refused = place.forge("models", "set", "openai-compatible:qwen")
    assert refused.code == 2 and "--address http://HOST:PORT/v1" in refused.err
    child = on_terminal(place, "models", "set", "openai-compatible:qwen")
    child.expect("Address of openai-compatible")
    child.send(f"{provider.url}\r")
    child.expect("is your default now, at")
    child.expect(pexpect.EOF)
    assert place.forge("run", "hello").out == "OK, here I am.\n"
    moved = place.forge("models", "set", "openai-compatible:other", "--address", provider.url)
    assert moved.code == 0 and "does not list other; it has qwen" in moved.out
