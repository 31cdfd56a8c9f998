"""What an editor is sent and may ask for, frame by frame; every frame is one of the official schema."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from acp import schema
from pydantic import TypeAdapter
from tests.deadlines import PATIENCE
from tests.ui.acp.editor import FILES, Editor
from tests.ui.change_data import created, edited, files_changed

from golem_forge.events.serialization import Event
from golem_forge.ui.acp.updates import UpdateStream

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
        "e221bc330000000049454e44ae426082"
    )
).decode()
UNLOCK = '''\
from pydantic import SecretStr

from golem_forge import tool


@tool(mode="both")
def unlock(key: SecretStr) -> str:
    """Unlock."""
    return "open"
'''
REQUESTS = {
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": TypeAdapter(schema.CreateElicitationRequest),
}


def check_frames(editor: Editor) -> None:
    """By the models of the SDK, strictly: no member that the schema does not know."""
    for frame in editor.frames:
        if frame.get("method") == "session/update":
            update = schema.SessionNotification.model_validate(frame["params"]).update
            known = json.loads(update.model_dump_json(by_alias=True))
            assert set(frame["params"]["update"]) <= set(known), frame
        elif frame.get("method"):
            model = REQUESTS[frame["method"]]
            (model.validate_python if isinstance(model, TypeAdapter) else model.model_validate)(frame["params"])


def test_every_frame_of_a_session_is_one_of_the_schema(program: Any) -> None:
    with Editor(program) as editor:
        schema.InitializeResponse.model_validate(editor.hello)
        assert [each["id"] for each in editor.hello["authMethods"]] == ["setup"]
        opened = editor.request("session/new", cwd=str(program.root), mcpServers=[])
        schema.NewSessionResponse.model_validate(opened)
        assert [each["category"] for each in opened["configOptions"]] == ["mode", "model"]
        session = opened["sessionId"]
        editor.prompt(session, "hello")
        editor.prompt(session, "/tool exec_command --cmd 'echo out; echo err >&2; exit 3'")
        check_frames(editor)
        commands = editor.until_update("available_commands_update")["availableCommands"]
        assert {"help", "model", "web"} <= {each["name"] for each in commands}
        assert editor.until_update("session_info_update")["title"] == "hello"
        usage = editor.until_update("usage_update")
        assert 0 < usage["used"] < usage["size"]
        command = [each for each in editor.updates("tool_call") if each["kind"] == "execute"]
        assert [each["title"] for each in command] == ["echo out; echo err >&2; exit 3"]
        last = editor.updates("tool_call_update")[-1]
        assert [each["content"]["text"].split("\n")[0] for each in last["content"]] == [
            "execution_failed: Exited: code 3",
            "```",
        ]
        assert "out" in last["content"][1]["content"]["text"]
        assert str(program.root) not in "".join(
            each["content"]["text"]
            for update in editor.updates("tool_call_update")
            for each in update.get("content", [])
            if each["type"] == "content"
        )


def test_text_is_sent_once_and_messages_do_not_run_together(editor: Editor) -> None:
    session = editor.new()
    editor.use_script(session, s="turns: [{say: One. Two., chunks: 4}, {say: Three., finish: length}]\n")
    editor.prompt(session, "a")
    editor.prompt(session, "b")
    assert editor.text().startswith("One. Two.Three.\n\nWarning: The response")
    ids = [each.get("messageId") for each in editor.updates("agent_message_chunk")]
    assert len(set(ids)) == 3


def test_live_output_replaces_and_is_throttled(editor: Editor) -> None:
    more = "until [ -e heard ]; do sleep 0.01; done; for i in $(seq 2 40); do echo line $i; sleep 0.02; done"
    loud = f"echo line 1; {more}; head -c 30000 /dev/zero | tr '\\\\0' x"
    session = editor.new()
    editor.use_script(
        session, s=f'turns: [{{calls: [{{tool: exec_command, args: {{cmd: "{loud}"}}}}]}}, {{say: ok}}]\n'
    )
    began = time.monotonic()
    asked = editor.begin_prompt(session, "go")
    editor.until(lambda frame: "line 1\\n" in json.dumps(frame), "the first line")
    (editor.root / "heard").touch()
    editor.result(asked)
    took = time.monotonic() - began
    live = [each for each in editor.updates("tool_call_update") if "status" not in each]
    assert 1 <= len(live) <= 5 * took + 2
    texts = [each["content"][0]["content"]["text"] for each in live]
    assert "line 1\n" in texts[0] and max(map(len, texts)) < 9000


def test_stop_reasons(program: Any) -> None:
    program.write(**{"main.worker": FILES["main.worker"].replace("name: main", "name: main\nmax_iterations: 1")})
    program.trust()
    with Editor(program) as editor:
        for turn, stop, said in (
            ("{say: Half an ans, finish: length}", "max_tokens", "Half an ans"),
            ("{say: No., finish: refused}", "refusal", "withheld"),
            ("{calls: [{tool: read_file, args: {path: a.txt}}]}", "max_turn_requests", "iterations"),
        ):
            session = editor.new()
            editor.use_script(session, s=f"turns: [{turn}]\n")
            assert editor.prompt(session, "go") == {"stopReason": stop}
            assert said in editor.text(session=session)


def test_a_turn_that_fails_is_an_error_and_the_session_goes_on(editor: Editor) -> None:
    session = editor.new()
    editor.use_script(session, s="turns: [{say: x, fail: {status: 401}}]\n")
    failed = editor.prompt(session, "go")
    assert failed["error"]["code"] == -32603 and "401" in failed["error"]["message"]
    editor.use_script(session, t="turns: [{say: Here.}]\n")
    assert editor.prompt(session, "go") == {"stopReason": "end_turn"}


def test_files_and_pictures_come_with_a_prompt(program: Any) -> None:
    """A link is a mention by zone address; a file outside of every zone is only named; a context is quoted."""
    inside = (program.root / "a.txt").as_uri()
    blocks = [
        {"type": "resource_link", "uri": f"{inside}#L2-3", "name": "a.txt"},
        {"type": "resource_link", "uri": "file:///etc/passwd", "name": "passwd"},
        {"type": "resource", "resource": {"uri": inside, "text": "quoted ``` text", "mimeType": "text/plain"}},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    ]
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(session, s="turns: [{expect: [/workspace/a.txt#L2-3, quoted], say: Seen.}, {say: again}]\n")
        assert editor.prompt(session, "look at ", *blocks) == {"stopReason": "end_turn"}
        refused = [
            editor.prompt(session, "x", {"type": "image", "data": "no base64!", "mimeType": "image/png"}),
            editor.prompt(session, "x", {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}),
            editor.prompt(session, "x" * 500_001),
        ]
        assert [each["error"]["code"] for each in refused] == [-32602] * 3
    [first, *_] = [each for each in program.history() if each["role"] == "user"]
    assert "/etc" not in first["text"] and "`passwd`" in first["text"] and "````" in first["text"]
    assert [each["name"] for each in first["attachments"]] == ["file-1.png"]
    told = [each["data"]["message"] for each in program.records() if each.get("event") == "message"]
    assert told[0]["said"] == "look at ", "what a reviewer takes for the person's word"


def test_modes_and_models_are_set_and_told(program: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        assert editor.request("session/set_mode", sessionId=session, modeId="strict") == {}
        assert editor.until_update("current_mode_update")["currentModeId"] == "strict"
        program.write(**{"other.yaml": "turns: [{say: Other.}]\n"})
        editor.prompt(session, "/model scripted:other.yaml")
        told = editor.updates("config_option_update")[-1]["configOptions"]
        assert [each["currentValue"] for each in told] == ["strict", "scripted:other.yaml"]
        for option, value in (("model", "nosuch:model"), ("mode", "approve_all"), ("colour", "red")):
            refused = editor.request("session/set_config_option", sessionId=session, configId=option, value=value)
            assert refused["error"]["code"] == -32602, refused
        editor.prompt(session, "now")
        assert "Other." in editor.text()
    with Editor(program, "--approval", "approve_all") as editor:
        opened = editor.request("session/new", cwd=str(program.root), mcpServers=[])
        assert opened["modes"]["currentModeId"] == "approve_all"


def test_slash_commands_and_the_end_of_a_session(editor: Editor) -> None:
    session = editor.new()
    assert editor.prompt(session, "/status") == {"stopReason": "end_turn"}
    assert "scripted:script.yaml" in editor.text()
    editor.prompt(session, "/stauts")
    assert "did you mean '/status'" in editor.text()
    assert editor.prompt(session, "/exit") == {"stopReason": "end_turn"}
    assert editor.prompt(session, "more")["error"]["code"] == -32002
    second = editor.new()
    assert editor.request("session/close", sessionId=second) == {}
    assert editor.request("session/close", sessionId=second)["error"]["code"] == -32002


def test_one_turn_at_a_time_and_a_command_beside_it(program: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(
            session, s="turns: [{calls: [{tool: write_file, args: {path: n.txt, content: x}}]}, {say: ok}]\n"
        )
        editor.answers = None
        number = editor.begin_prompt(session, "write")
        asked = editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
        second = editor.begin_prompt(session, "second")
        assert editor.prompt(session, "/status") == {"stopReason": "end_turn"}
        outcome = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        editor.write({"jsonrpc": "2.0", "id": asked["id"], "result": outcome})
        editor.write({"jsonrpc": "2.0", "id": asked["id"], "result": outcome})  # an answer twice counts once
        assert editor.result(number) == {"stopReason": "end_turn"}
        assert "has only 2 turns" in editor.result(second)["error"]["message"], "it came after the first, not beside it"
        editor.use_script(session, t="turns: [{calls: [{tool: write_file, args: {path: n.txt, content: y}}]}]\n")
        editor.forget()
        number = editor.begin_prompt(session, "write again")
        waits = editor.begin_prompt(session, "never asked")
        editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
        editor.notify("$/cancel_request", requestId="nothing")
        editor.notify("$/cancel_request", requestId=number)
        assert [editor.result(each) for each in (number, waits)] == [{"stopReason": "cancelled"}] * 2
    assert [(call.tool, call.starts) for call in program.calls()] == [("write_file", 1), ("write_file", 0)]


def test_a_session_that_is_left_while_it_answers_a_prompt(program: Any) -> None:
    """By a command, by the editor's close, and by the end of its input."""
    with Editor(program) as editor:
        editor.answers = None

        def asks() -> tuple[str, int]:
            session = editor.new()
            editor.use_script(
                session, s="turns: [{calls: [{tool: write_file, args: {path: n.txt, content: x}}]}, {say: ok}]\n"
            )
            editor.forget()
            number = editor.begin_prompt(session, "write")
            editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
            assert editor.prompt(session, "/status") == {"stopReason": "end_turn"}
            return session, number

        session, number = asks()
        assert editor.prompt(session, "/exit") == {"stopReason": "end_turn"}
        assert editor.result(number) == {"stopReason": "cancelled"}
        assert editor.prompt(session, "more")["error"]["code"] == -32002
        session, number = asks()
        assert editor.request("session/close", sessionId=session) == {}
        assert editor.result(number) == {"stopReason": "cancelled"}
        asks()
        assert editor.leave() == 0
    assert not (program.root / "n.txt").exists()


def test_a_question_that_is_cancelled_cancels_the_turn(editor: Editor) -> None:
    session = editor.new()
    editor.use_script(
        session, s="turns: [{calls: [{tool: write_file, args: {path: n.txt, content: x}}]}, {say: went on}]\n"
    )
    editor.answers = lambda frame: {"outcome": {"outcome": "cancelled"}}
    assert editor.prompt(session, "write") == {"stopReason": "cancelled"}
    assert "went on" not in editor.text()
    assert not (editor.root / "n.txt").exists()


def test_changes_are_shown_as_diffs_that_can_be_read(program: Any) -> None:
    """A deletion, a file with lines that end by CRLF, and one that is too large to be shown."""
    root = program.root
    (root / "gone.txt").write_text("one\ntwo\n")
    (root / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    (root / "big.txt").write_text("a line of text\n" * 140_000)
    script = """
      turns:
        - calls: [{tool: delete_file, args: {path: gone.txt}}]
        - calls: [{tool: write_file, args: {path: crlf.txt, content: "a\\r\\nc\\r\\n"}}]
        - calls: [{tool: write_file, args: {path: big.txt, content: "x\\n"}}]
        - say: done
    """
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(session, s=script)
        assert editor.prompt(session, "go") == {"stopReason": "end_turn"}
        deleted, crlf, big = (asked["toolCall"] for asked in editor.asked())
        ends = {
            each["toolCallId"]: each for each in editor.updates("tool_call_update") if each["status"] == "completed"
        }
    gone = {"type": "diff", "path": str(root / "gone.txt"), "oldText": "one\ntwo\n", "newText": ""}
    assert deleted["content"][1:] == [gone] and gone in ends[deleted["toolCallId"]]["content"]
    [_, changed] = crlf["content"]
    assert (changed["oldText"], changed["newText"]) == ("a\nb\n", "a\nc\n") and "x0d" not in json.dumps(crlf["content"])
    assert "escapes" not in json.dumps(crlf["content"])
    [text] = ends[big["toolCallId"]]["content"]
    assert "replaced whole" in text["content"]["text"] and "/dev/null" not in text["content"]["text"]
    assert len(json.dumps(big)) + len(json.dumps(ends[big["toolCallId"]])) < 10_000


def test_a_form_and_a_reason_where_the_editor_has_forms(program: Any) -> None:
    def answers(frame: Any) -> Any:
        if frame["method"] == "elicitation/create":
            fields = frame["params"]["requestedSchema"]["properties"]
            return {"action": "accept", "content": {"reason": "not today"} if "reason" in fields else {"path": "a.txt"}}
        return {"outcome": {"outcome": "selected", "optionId": "reject_once"}}

    with Editor(program, elicitation={"form": {}}) as editor:
        session = editor.new()
        editor.answers = answers
        editor.prompt(session, "/tool file_info")  # the path is missing: a form asks for it
        assert "a.txt" in json.dumps(editor.updates("tool_call_update"))
        editor.use_script(session, s="turns: [{calls: [{tool: delete_file, args: {path: a.txt}}]}, {say: ok}]\n")
        editor.prompt(session, "delete")
        check_frames(editor)
        assert (program.root / "a.txt").exists()
        last = editor.updates("tool_call_update")[-1]
        assert last["content"][0]["content"]["text"] == "approval_denied: Denied by the user: not today"


def test_a_form_without_forms_says_where_to_answer(editor: Editor) -> None:
    session = editor.new()
    number = editor.begin_prompt(session, "/tool file_info")
    editor.until(lambda frame: "/web" in json.dumps(frame.get("params", {}).get("update", {}).get("content")), "where")
    editor.notify("session/cancel", sessionId=session)
    assert editor.result(number) == {"stopReason": "cancelled"}


def test_sessions_are_listed_resumed_and_belong_to_their_directory(program: Any, tmp_path: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        editor.prompt(session, "hello")
        editor.request("session/close", sessionId=session)
        [listed] = editor.request("session/list")["sessions"]
        assert (listed["sessionId"], listed["cwd"], listed["title"]) == (session, str(program.root), "hello")
        assert editor.request("session/list", cursor="x")["error"]["code"] == -32602
        editor.forget()
        answer = editor.request("session/resume", sessionId=session, cwd=str(program.root), mcpServers=[])
        assert answer["modes"]["currentModeId"] == "interactive"
        assert editor.updates("user_message_chunk") == [], "nothing is replayed"
        editor.forget()
        editor.request("session/close", sessionId=session)
        other = tmp_path / "other"
        other.mkdir()
        refused = editor.request("session/load", sessionId=session, cwd=str(other), mcpServers=[])
        assert "another directory" in refused["error"]["message"]
        for bad in ("../../etc/passwd", "last", session[:8], "0" * 32):
            refused = editor.request("session/load", sessionId=bad, cwd=str(program.root), mcpServers=[])
            assert refused["error"]["code"] == -32002
        assert editor.request("session/delete", sessionId="../../etc/passwd")["error"]["code"] == -32002
        open_too = editor.new()
        for each in (session, open_too, session):
            assert editor.request("session/delete", sessionId=each) == {}
        assert editor.request("session/list")["sessions"] == []


def test_a_session_is_loaded_with_the_directory_that_the_list_names(program: Any) -> None:
    """Its zone may be a directory further down."""
    zones = "sandbox: {zones: {workspace: {path: src, mode: rw}}}\n"
    program.write(**{"forge.yaml": FILES["forge.yaml"] + zones, "src/b.txt": ""})
    with Editor(program) as editor:
        session = editor.request("session/new", cwd=str(program.root / "src"), mcpServers=[])["sessionId"]
        editor.prompt(session, "hello")
        editor.request("session/close", sessionId=session)
        [listed] = editor.request("session/list")["sessions"]
        loaded = editor.request("session/load", sessionId=session, cwd=listed["cwd"], mcpServers=[])
        assert "modes" in loaded, loaded
        refused = editor.request("session/new", cwd=listed["cwd"], mcpServers=[])
        assert "outside of every zone" in refused["error"]["message"]


def test_a_loaded_session_is_told_as_it_was_live(editor: Editor) -> None:
    """The same titles, and the thoughts before the words."""
    session = editor.new()
    editor.prompt(session, "hello")
    live = told_of(editor)
    editor.request("session/close", sessionId=session)
    editor.forget()
    editor.request("session/load", sessionId=session, cwd=str(editor.root), mcpServers=[])
    assert told_of(editor) == live
    assert ("agent_thought_chunk", "The person greets me.") in live
    assert editor.updates("usage_update") != []


def told_of(editor: Editor) -> list[tuple[str, str]]:
    """Titles of calls and the words of each message or thought, joined, in order."""
    found: list[tuple[str, str]] = []
    for frame in editor.frames:
        update = frame.get("params", {}).get("update", {}) if frame.get("method") == "session/update" else {}
        kind = update.get("sessionUpdate")
        if kind == "tool_call":
            found.append((kind, update["title"]))
        elif kind in ("agent_message_chunk", "agent_thought_chunk"):
            text = update["content"]["text"]
            if found and found[-1][0] == kind:
                found[-1] = (kind, found[-1][1] + text)
            else:
                found.append((kind, text))
    return [(kind, text.strip()) for kind, text in found]


def test_the_page_of_a_session_and_a_secret_that_is_typed_there_only(program: Any) -> None:
    """`/web` gives a link to the editor alone. A form with a secret is answered on the page, never in the editor."""
    main = (program.root / "main.worker").read_text()
    custom = "  plan: {}\n  custom: {module: ./tools.py, tools: [unlock]}"
    program.write(**{"tools.py": UNLOCK, "main.worker": main.replace("  plan: {}", custom)})
    program.trust()
    with Editor(program, elicitation={"url": {}, "form": {}}) as editor:
        session = editor.new()
        editor.answers = lambda frame: {"action": "accept"} if frame["method"] == "elicitation/create" else None
        editor.prompt(session, "/web")
        link = editor.text()
        assert "http://127.0.0.1:" in link and "#code=" in link
        number = editor.begin_prompt(session, "/tool unlock -i")
        asked = editor.until(lambda frame: frame.get("method") == "elicitation/create", "the question")["params"]
        assert (asked["mode"], "#code=" in asked["url"]) == ("url", True)
        check_frames(editor)
        editor.notify("session/cancel", sessionId=session)
        assert editor.result(number) == {"stopReason": "cancelled"}
    assert b"#code=" not in program.kept_bytes()


def test_a_question_of_the_editor_is_answered_on_the_page(program: Any) -> None:
    """The first answer counts, wherever it is given; the editor's permission is no longer waited for."""

    def ask(method: str, path: str, body: Any = None, cookie: str = "") -> Any:
        headers = {"Origin": origin, "Cookie": cookie, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return urlopen(Request(origin + path, data, headers, method=method), timeout=PATIENCE)

    with Editor(program) as editor:
        session = editor.new()
        editor.answers = None
        editor.prompt(session, "/web")
        link = urlsplit(next(word for word in editor.text().split() if "#code=" in word))
        origin = f"{link.scheme}://{link.netloc}"
        login = ask("POST", "/api/login", {"code": link.fragment.removeprefix("code=")})
        cookie = login.headers["Set-Cookie"].partition(";")[0]
        number = editor.begin_prompt(session, "hello")
        editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
        [question] = json.load(ask("GET", "/api/questions", cookie=cookie))["questions"]
        yes = {"id": "1", "type": "approvalResponse", "data": {"requestId": question["requestId"], "approved": True}}
        ask("POST", f"/api/sessions/{session}/actions", yes, cookie)
        assert editor.result(number) == {"stopReason": "end_turn"}
    assert (program.root / "a.txt").read_text() == "one\nthree\n"
    [resolved] = [each["data"] for each in program.records() if each.get("event") == "approvalResolved"]
    assert (resolved["approved"], resolved["by"]) == (True, "browser")


def test_the_modes_contained_and_plan_are_offered_and_the_commands_about_changes_are_there(editor: Editor) -> None:
    session = editor.new()
    names = {each["name"] for each in editor.until_update("available_commands_update")["availableCommands"]}
    assert {"changes", "undo", "redo", "rewind", "mode"} <= names
    assert editor.request("session/set_mode", sessionId=session, modeId="contained") == {}
    assert editor.until_update("current_mode_update")["currentModeId"] == "contained"
    assert editor.request("session/set_mode", sessionId=session, modeId="plan") == {}
    editor.prompt(session, "/plan show")
    assert editor.updates("current_mode_update")[-1]["currentModeId"] == "plan"
    editor.prompt(session, "/mode interactive")
    assert editor.updates("current_mode_update")[-1]["currentModeId"] == "interactive"
    editor.prompt(session, "/mode approve_all")
    assert "is chosen when a session starts" in editor.text()
    editor.prompt(session, "hello")
    editor.prompt(session, "/rewind 1 conversation")
    assert "The conversation is back before message 1" in editor.text()
    said = [each["content"]["text"].strip() for each in editor.updates("agent_message_chunk")]
    assert "hello" in said, "the message is said: an editor's input line is its own"


def test_a_turn_that_changed_files_ends_with_one_line_of_text() -> None:
    updates = UpdateStream(Nowhere())
    for data in (files_changed(1, edited("/w/a", 1, 1)), files_changed(1, created("/w/b", 2), call="c2")):
        assert list(updates.take(Event("filesChanged", data))) == []
    (update,) = updates.end_turn()
    assert update["content"]["text"] == "changed 2 files (+3 −1) · /changes · /undo"
    assert list(updates.end_turn()) == []


def test_notices_and_compaction_are_sent_to_a_client_that_asks_for_them(program: Any) -> None:
    """Drafts of the protocol: by `clientCapabilities.session`, and to nobody else."""
    script = "turns: [{say: one}, {say: two}, {say: three}, {say: four}, {say: The summary.}, {say: five}]\n"
    program.write(**{"talk.yaml": script})
    for asked in ({}, {"session": {"notices": {}, "compaction": {}}}, {"session": {"notices": None, "compaction": []}}):
        with Editor(program, "-m", "scripted:talk.yaml", **asked) as editor:
            session = editor.new()
            for text in ("1", "2", "3", "4"):
                assert editor.prompt(session, text) == {"stopReason": "end_turn"}
            editor.prompt(session, "/compact")
            wanted = asked.get("session", {}).get("compaction") == {}
            compactions = editor.updates("compaction_update")
            assert [each["status"] for each in compactions] == ["in_progress", "completed"] * wanted, editor.text()
            assert len({each["compactionId"] for each in compactions}) == wanted
            if not wanted:
                check_frames(editor)
                assert editor.updates("notice") == []


def test_what_is_told_as_a_session_begins_is_a_notice_where_the_editor_takes_them(program: Any) -> None:
    worker = FILES["main.worker"].replace("  plan: {}", "  mcp: {servers: [say]}")
    config = FILES["forge.yaml"] + "mcp: {servers: {say: {command: /bin/false}}}\n"
    program.write(**{"forge.yaml": config, "main.worker": worker})
    program.trust()
    with Editor(program, session={"notices": {}}) as editor:
        editor.new()
        notice = editor.until_update("notice")
        assert notice["severity"] == "warning" and "'say' is pending" in notice["title"]
        assert "Note: " not in editor.text()


def test_a_notice_is_no_part_of_the_answer() -> None:
    said = {"type": "warning", "message": "MCP server 'x' is gone.\nIt is started again.", "code": ""}
    (notice,) = UpdateStream(Nowhere(), extras=frozenset({"notices"})).take(Event("status", said))
    assert notice == {
        "sessionUpdate": "notice",
        "severity": "warning",
        "title": "MCP server 'x' is gone.",
        "description": "It is started again.",
    }
    (message,) = UpdateStream(Nowhere()).take(Event("status", said))
    assert message["sessionUpdate"] == "agent_message_chunk"
    old = UpdateStream(Nowhere(), replayed=True, extras=frozenset({"notices"}))
    assert list(old.take(Event("status", said))) == []


class Nowhere:
    def picture(self, handle: str) -> str:
        return "R0lGODlh" if handle == "out_0123456789ab" else ""

    def host_path(self, address: str, worker_id: str) -> str:
        return ""


def test_a_picture_of_a_result_is_shown_as_a_picture() -> None:
    updates = UpdateStream(Nowhere())
    part = {"handle": "out_0123456789ab", "mediaType": "image/gif", "size": 6}
    gone = {"handle": "out_000000000000", "mediaType": "image/gif", "size": 6}
    sound = {"handle": "out_0123456789ab", "mediaType": "audio/wav", "size": 6}
    data = {"toolCallId": "c1", "toolName": "shot", "args": {}, "status": "success", "media": [part, gone, sound]}
    *_, update = updates.take(Event("toolResult", data))
    pictures = [each["content"] for each in update["content"] if each["content"]["type"] == "image"]
    assert pictures == [{"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"}]


def test_other_roots_of_the_editor_are_zones_where_nobody_wrote_any(program: Any, tmp_path: Any) -> None:
    more, plain = tmp_path / "My Library", tmp_path / "plain"
    for place in (more, plain):
        place.mkdir()
    (more / "b.txt").write_text("from the other root\n")
    (plain / "script.yaml").write_text(
        "turns: [{calls: [{tool: read_file, args: {path: /my-library/b.txt}}]}, {say: Read.}]\n"
    )
    with Editor(program, "-m", "scripted:script.yaml") as editor:
        assert editor.hello["agentCapabilities"]["sessionCapabilities"]["additionalDirectories"] == {}
        session = editor.new(cwd=str(plain), additionalDirectories=[str(more), str(plain / ".")])
        editor.prompt(session, "read it")
        assert "from the other root" in json.dumps(editor.updates("tool_call_update"))
        editor.request("session/close", sessionId=session)
        again = {"sessionId": session, "cwd": str(plain), "mcpServers": [], "additionalDirectories": [str(more)]}
        assert "modes" in editor.request("session/load", **again)

        for wrong in ("relative", str(tmp_path / "nowhere")):
            refused = editor.request("session/new", cwd=str(plain), mcpServers=[], additionalDirectories=[wrong])
            assert refused["error"]["code"] == -32602 and "additionalDirectories.0" in refused["error"]["message"]
        # a program says which zones it has: an editor adds none
        refused = editor.request("session/new", cwd=str(program.root), mcpServers=[], additionalDirectories=[str(more)])
        assert "outside of every zone" in refused["error"]["message"]


def test_other_roots_widen_no_zones_that_the_person_wrote(program: Any, tmp_path: Any) -> None:
    more, plain = tmp_path / "more", tmp_path / "plain"
    for place in (more, plain):
        place.mkdir()
    (program.home / "config.yaml").write_text(f"sandbox: {{zones: {{workspace: {{path: {plain}, mode: ro}}}}}}\n")
    (plain / "script.yaml").write_text("turns: [{say: Hello.}]\n")
    with Editor(program, "-m", "scripted:script.yaml") as editor:
        asked = {"cwd": str(plain), "mcpServers": []}
        assert "sessionId" in editor.request("session/new", **asked)
        refused = editor.request("session/new", **asked, additionalDirectories=[str(more)])
        assert "outside of every zone" in refused["error"]["message"]


def test_no_model_wants_the_setup_and_a_logout_ends_the_sessions(program: Any) -> None:
    program.write(**{"forge.yaml": "sandbox: {zones: {workspace: {path: ., mode: rw}}}\n"})
    program.trust()
    with Editor(program, auth={"terminal": True}) as editor:
        schema.InitializeResponse.model_validate(editor.hello)
        methods = {each["id"]: each for each in editor.hello["authMethods"]}
        assert methods["setup-in-terminal"]["args"] == ["--setup"] and "forge models setup" in str(methods["setup"])
        refused = editor.request("session/new", cwd=str(program.root), mcpServers=[])
        assert refused["error"]["code"] == -32000 and "forge models setup" in refused["error"]["message"]
        program.write(**{"forge.yaml": FILES["forge.yaml"]})
        program.trust()
        assert editor.request("authenticate", methodId="setup") == {}
        session = editor.new()
        assert editor.request("authenticate", methodId="other")["error"]["code"] == -32602
        assert editor.request("logout") == {}
        assert editor.request("session/prompt", sessionId=session, prompt=[])["error"]["code"] == -32002
        refused = editor.request("session/new", cwd=str(program.root), mcpServers=[])
        assert refused["error"]["code"] == -32000
        assert editor.request("authenticate", methodId="setup") == {}
        assert editor.prompt(editor.new(), "hello") == {"stopReason": "end_turn"}
    with Editor(program) as editor:
        assert [each["id"] for each in editor.hello["authMethods"]] == ["setup"]


def test_a_command_is_a_terminal_where_the_editor_feeds_one(program: Any) -> None:
    """The client starts nothing: Forge sends what the command prints, without what could steer a terminal."""
    command = "printf 'first\\\\n'; printf '\\\\033]0;pwned\\\\007last\\\\n'; exit 3"
    script = f'turns: [{{calls: [{{tool: exec_command, args: {{cmd: "{command}"}}}}]}}, {{say: ok}}]\n'
    with Editor(program, _meta={"terminal_output": True}) as editor:
        session = editor.new()
        editor.use_script(session, s=script)
        editor.prompt(session, "go")
        updates = [each for each in editor.updates() if each["sessionUpdate"].startswith("tool_call")]
        [running] = [each for each in updates if each.get("status") == "in_progress"]
        call_id = running["toolCallId"]
        terminal = {"type": "terminal", "terminalId": call_id}
        assert running["content"] == [terminal]
        info = {"terminal_id": call_id, "cwd": str(program.root)}
        assert running["_meta"] == {"terminal_info": info}
        fed = "".join(each["_meta"]["terminal_output"]["data"] for each in updates if "terminal_output" in str(each))
        assert "first\n" in fed and "last" in fed and "\x1b" not in fed and "\x07" not in fed
        assert updates[-1]["content"][0] == terminal and updates[-1]["status"] == "failed"
        assert updates[-1]["_meta"]["terminal_exit"]["exit_code"] == 3
        assert [frame for frame in editor.frames if str(frame.get("method")).startswith("terminal/")] == []
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(session, s=script)
        editor.prompt(session, "go")
        assert "terminalId" not in json.dumps(editor.frames)


def test_what_the_session_costs_is_told_with_its_usage(program: Any) -> None:
    """In USD, of a model with a price; nothing of one without."""
    script = "turns: [{say: one, usage: {input: 1000, output: 500}}, {say: two, usage: {input: 2000, output: 500}}]\n"
    program.write(**{"priced.yaml": script, "free.yaml": script})
    priced = FILES["forge.yaml"] + "pricing: {'scripted:priced.yaml': {input: 2, output: 10}}\n"
    program.write(**{"forge.yaml": priced})
    program.trust()
    with Editor(program, "-m", "scripted:priced.yaml") as editor:
        session = editor.new()
        for text, cost in (("1", 0.007), ("2", 0.016)):
            editor.forget()
            assert editor.prompt(session, text) == {"stopReason": "end_turn"}
            assert editor.updates("usage_update")[-1]["cost"] == {"amount": pytest.approx(cost), "currency": "USD"}
        check_frames(editor)
    with Editor(program, "-m", "scripted:free.yaml") as editor:
        editor.prompt(editor.new(), "1")
        assert [each for each in editor.updates("usage_update") if "cost" in each] == []
