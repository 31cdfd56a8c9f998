"""A client that means harm, or is broken: it learns nothing, hangs nothing, and gets no yes that nobody gave."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests.deadlines import ROOM, within
from tests.ui.acp.editor import Editor

WRITES = "turns: [{calls: [{tool: write_file, args: {path: n.txt, content: x}}]}, {say: ok}]\n"
ANSWERS = [
    {},
    {"outcome": 5},
    {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": "selected", "optionId": ["allow_once"]}},
    {"outcome": {"outcome": "selected", "optionId": "remember:no such offer"}},
    {"outcome": {"outcome": "approved", "optionId": "allow_once"}},
    [],
    7,
]


def test_an_answer_that_was_not_offered_denies(program: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        for number, answer in enumerate(ANSWERS):
            editor.use_script(session, **{f"s{number}": WRITES})
            editor.answers = lambda _, answer=answer: answer
            assert editor.prompt(session, "write") == {"stopReason": "end_turn"}
    assert {call.status for call in program.calls()} == {"approval_denied"}
    assert not (program.root / "n.txt").exists()


def test_a_client_that_does_not_read_is_not_served_and_its_end_is_noticed(program: Any) -> None:
    process = program.ready.start_with_input(["forge", "acp"], cwd=program.root, env=program.environ)
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    process.stdin.write(json.dumps(hello).encode() + b"\n")
    process.stdin.flush()
    flood = b"".join(b'{"jsonrpc":"2.0","id":"%d","method":"%s"}\n' % (at, b"x" * 500) for at in range(4000))
    os.set_blocking(process.stdin.fileno(), False)
    sent = 0
    while sent < len(flood):  # until nobody takes any more
        try:
            sent += os.write(process.stdin.fileno(), flood[sent : sent + 65536])
        except BlockingIOError:
            break
    process.stdin.close()
    with within(2):
        assert process.wait(2 + ROOM) == 0


def test_sigterm_ends_it_while_a_question_is_open(program: Any) -> None:
    program.write(**{"s.yaml": WRITES})
    editor = Editor(program, "-m", "scripted:s.yaml")
    editor.answers = None
    editor.begin_prompt(editor.new(), "write")
    editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
    with within(2):
        editor.process.send_signal(signal.SIGTERM)
        assert editor.process.wait(2 + ROOM) == 0
    assert not (program.root / "n.txt").exists() and program.forge("log", "verify").code == 0


def test_what_may_not_be_asked_for_is_refused(program: Any) -> None:
    with Editor(program) as editor:
        first = editor.new()
        opened = [editor.begin("session/new", cwd=str(program.root), mcpServers=[]) for _ in range(16)]
        answers = [editor.result(number) for number in opened]
        assert sum("sessionId" in each for each in answers) == 15, "sixteen at once"
        refused = [each["error"]["message"] for each in answers if "error" in each]
        assert refused == ["16 sessions are open here; close one first"]
        assert editor.request("authenticate", methodId="no such way")["error"]["code"] == -32602
        for method in ("session/fork", "fs/read_text_file", "__class__", "_x"):
            assert editor.request(method, sessionId=first)["error"]["code"] == -32601
        home = editor.request("session/new", cwd=str(program.home), mcpServers=[])
        assert "error" in home and str(program.home) not in json.dumps(home)
        odd = editor.request("session/new", cwd=f"{program.root}/\0x", mcpServers=[])
        assert odd["error"]["code"] == -32602
        again = editor.request("initialize", protocolVersion=1)
        assert again["error"]["code"] == -32600
    process = program.ready.start_with_input(["forge", "acp"], cwd=program.root, env=program.environ)
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}\n')
    out, _ = process.communicate(30)
    assert json.loads(out)["error"]["message"] == "the first request is initialize"


HOSTILE_TEXTS = ["```\n![](http://evil.test/x.png)\n```", "\x1b[2J\u202egnp.exe", "\ud800 half"]


def test_hostile_text_stays_text(editor: Editor) -> None:
    session = editor.new()
    turn = "{calls: [{tool: exec_command, args: {cmd: cat hostile.txt}}]}, {say: ok}"
    editor.use_script(session, s=f"turns: [{', '.join([turn] * len(HOSTILE_TEXTS))}]\n")
    for text in HOSTILE_TEXTS:
        (editor.root / "hostile.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
        assert editor.prompt(session, "show it") == {"stopReason": "end_turn"}
        shown = editor.updates("tool_call_update")[-1]["content"][-1]["content"]["text"]
        fence = shown.split("\n")[0]
        assert set(fence) == {"`"} and shown.endswith(f"\n{fence}") and shown.count(fence) == 2
        assert "\x1b" not in shown and "\u202e" not in shown


def with_secret(value: Any, secret: Any) -> list[Any]:
    """The value with the secret in each of its places, one at a time."""
    found = [secret]
    if isinstance(value, dict):
        found += [{**value, name: each} for name, item in value.items() for each in with_secret(item, secret)]
    elif isinstance(value, list):
        found += [
            [*value[:at], each, *value[at + 1 :]] for at, item in enumerate(value) for each in with_secret(item, secret)
        ]
    return found


def test_no_refusal_repeats_what_was_sent(editor: Editor) -> None:
    secret = "sekret-4f0a77"
    server = {"name": "s", "command": "c", "args": ["a"], "env": [{"name": "N", "value": "v"}]}
    web = {"type": "http", "name": "w", "url": "https://a.test", "headers": [{"name": "N", "value": "v"}]}
    picture = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": "t"}}
    shapes = {
        "session/new": {"cwd": "/nowhere", "mcpServers": [server, web], "additionalDirectories": []},
        "session/load": {"cwd": "/nowhere", "mcpServers": [server], "sessionId": "0" * 32},
        "session/prompt": {"sessionId": "x", "prompt": [{"type": "text", "text": "t"}, picture, resource]},
        "session/set_mode": {"sessionId": "x", "modeId": "y"},
        "session/set_config_option": {"sessionId": "x", "configId": "y", "value": "z"},
        "session/list": {"cwd": "/", "cursor": "1"},
    }
    editor.new()
    editor.forget()
    sent = [
        editor.begin(method, **params)
        for method, shape in shapes.items()
        for given in (secret, 5, {secret: secret}, [secret])
        for params in with_secret(shape, given)
        if isinstance(params, dict) and all(isinstance(name, str) for name in params)
    ]
    answers = [editor.result(number) for number in sent]
    assert len(answers) > 150 and secret not in json.dumps(answers)
    invalid = [each["error"] for each in answers if each.get("error", {}).get("code") == -32602]
    located = [each["data"]["errors"][0] for each in invalid if "data" in each]
    assert located and all(set(each) == {"location", "message"} for each in located)


def test_an_editor_that_leaves_while_sessions_open_leaves_none_open(program: Any) -> None:
    editor = Editor(program)
    for _ in range(3):
        editor.begin("session/new", cwd=str(program.root), mcpServers=[])
    assert editor.leave() == 0
    assert {program.records(at)[-1]["type"] for at in range(len(program.journals))} <= {"closed"}


def test_nothing_stays_open_for_a_form_that_the_page_shows_too(program: Any) -> None:
    editor = Editor(program)
    session = editor.new()
    form = editor.begin_prompt(session, "/tool write_file -i")
    editor.until(lambda frame: "This form waits" in json.dumps(frame), "the form")
    editor.begin_prompt(session, "/web")
    editor.until(lambda frame: "#code=" in json.dumps(frame), "the page")
    with within(2):
        assert editor.request("session/close", sessionId=session) == {}
    assert editor.result(form) == {"stopReason": "cancelled"}
    assert editor.leave() == 0


def test_a_session_that_is_being_closed_is_loaded_alive_and_only_in_its_directory(program: Any, tmp_path: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(session, s="turns: [{say: one}]\n")
        editor.prompt(session, "hello")
        editor.use_script(session, w=WRITES)
        editor.answers = None
        editor.begin_prompt(session, "write")
        editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
        elsewhere = editor.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        assert "another directory" in elsewhere["error"]["message"]
        editor.begin("session/close", sessionId=session)
        assert "modes" in editor.request("session/load", sessionId=session, cwd=str(program.root), mcpServers=[])
        assert editor.prompt(session, "/status") == {"stopReason": "end_turn"}


def test_odd_addresses_are_no_fault_of_the_agent(program: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(session, s=f"turns: [{', '.join(['{say: ok}'] * 12)}]\n")
        for uri in ("file://[x", "//[", "file:///a%00b", "x" * 5000):
            quote = {"type": "resource", "resource": {"uri": uri, "text": "t"}}
            picture = {"type": "image", "data": "AA==", "mimeType": "image/png", "uri": uri}
            for block in ({"type": "resource_link", "uri": uri, "name": "n"}, quote, picture):
                assert editor.prompt(session, "look", block) == {"stopReason": "end_turn"}, uri
        for cwd in ("/" + "a" * 5000, "/\ud800", "/\0", "."):
            assert editor.request("session/list", cwd=cwd)["error"]["code"] == -32602
        model = editor.request("session/set_config_option", sessionId=session, configId="model", value="x" * 100_000)
        assert len(json.dumps(model)) < 1000
    assert b"Traceback" not in editor.process.stderr.read()
