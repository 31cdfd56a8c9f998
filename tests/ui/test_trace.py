"""The rows of ui.md §5 at each level, by their exact texts (U11)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ui.card_data import card_data
from tests.ui.change_data import created, edited, files_changed

from golem_forge.events.bus import EventBus
from golem_forge.events.serialization import Event
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import TraceFormatter, TraceLevel, create_trace_formatter

LEVELS = ["quiet", "summary", "normal", "debug"]
DECISION = {
    "verdict": "ask",
    "decidedBy": {"source": "rule", "verdict": "ask", "id": "no-push", "reason": "pushes", "file": "f.yaml", "line": 3},
    "risk": "high",
    "answeredBy": "person",
    "fingerprint": "abc123",
    "remembered": "session",
}


def event(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return kind, data


def started(call: str = "c1", **fields: Any) -> tuple[str, dict[str, Any]]:
    base = {"toolCallId": call, "toolName": "git_push", "args": {"branch": "m" * 80}, "caller": "llm"}
    return "toolStarted", {**base, **fields}


def ended(call: str = "c1", **fields: Any) -> tuple[str, dict[str, Any]]:
    base = {
        "toolCallId": call,
        "toolName": "git_push",
        "args": {},
        "status": "success",
        "durationMs": 12,
        "decision": DECISION,
        "truncated": False,
        "value": {"kind": "text", "content": "pushed"},
    }
    return "toolResult", {**base, **fields}


def failed(**fields: Any) -> tuple[str, dict[str, Any]]:
    kind, data = ended(status="execution_failed", error="rejected", **fields)
    return kind, {name: value for name, value in data.items() if name != "value"}


def said(role: str, content: str) -> tuple[str, dict[str, Any]]:
    return "message", {"message": {"role": role, "content": content}}


def stream(delta: str, done: bool = False, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "streaming", {"requestId": "r1", "delta": delta, "done": done, "channel": "text", **fields}


CARD = card_data(
    requestId="q1", tool="git_push", description="git_push: Push.", payload="git push", risk="high", why="rule no-push"
)
FORM = {"requestId": "q2", "source": "server x", "title": "Sign in", "message": "Who?", "fields": [{"name": "user"}]}
USED = {"input": 1234, "output": 56, "cached": 200, "cost": 0.0123}

TITLE = "── git_push wants to run · risk high " + "─" * 20
TOTAL = "total: 1,234 in (200 cached) · 56 out · $0.0123 · 1 tool call"
DECIDED = (
    "  decision: ask by rule no-push: pushes (f.yaml:3) · risk high · answered by person"
    " · remembered: session · fingerprint abc123"
)
END = ("sessionEnd", {"reason": "completed"})
ROWS: dict[str, tuple[list[tuple[str, dict[str, Any]]], dict[str, str]]] = {
    # what happens: what is shown from that level on (raw events left out)
    "final answer": ([said("assistant", "Done.\n"), END], {"quiet": "Done.", "normal": "Done.|session completed"}),
    "an answer on the way to another": (
        [
            said("assistant", "First I push."),
            started(args={}),
            said("assistant", "Done."),
            event("inputPrompt", requestId="i", prompt=">"),
        ],
        {"quiet": "Done.", "normal": "First I push.|▸ git_push|Done.", "debug": "First I push.|▸ git_push|  {}|Done."},
    ),
    "approval": (
        [
            ("approvalRequired", CARD),
            event(
                "approvalResolved",
                requestId="q1",
                approved=False,
                by="timeout",
                edited=False,
                reason="No answer within 1 s.",
            ),
        ],
        {"quiet": f"{TITLE}|│ git push|  why asked: rule no-push|denied by timeout: No answer within 1 s."},
    ),
    "approval that is remembered": (
        [
            ("approvalRequired", {**CARD, "choices": [{"id": "c", "label": "every call", "scope": "session"}]}),
            event("approvalResolved", requestId="q1", approved=True, by="terminal", edited=False, choice="c"),
        ],
        {
            "quiet": (
                f"{TITLE}|│ git push|  why asked: rule no-push|  5 session: every call"
                "|approved · remembered (session): every call"
            )
        },
    ),
    "form": (
        [event("formRequired", **FORM, workerPath=[]), event("formResolved", requestId="q2", action="cancel")],
        {"quiet": "── server x asks: Sign in|  Who?|  user|form: cancel"},
    ),
    "error status": ([event("status", type="error", message="no key")], {"quiet": "error: no key"}),
    "answer to a slash command": (
        [event("status", type="info", message="two\nlines", code="command")],
        {"quiet": "two|lines"},
    ),
    "end by error": (
        [event("sessionEnd", reason="error", message="it broke")],
        {"quiet": "session ended with an error: it broke"},
    ),
    "an error that was told is not told again": (
        [
            said("user", "hi"),
            event("status", type="error", message="it broke"),
            event("sessionEnd", reason="error", message="it broke"),
        ],
        {
            "quiet": "error: it broke|session ended with an error",
            "summary": "> hi|error: it broke|session ended with an error",
        },
    ),
    "an error before anything ran": (
        [event("status", type="error", message="no key"), event("sessionEnd", reason="error", message="no key")],
        {"quiet": "error: no key|nothing was run"},
    ),
    "end by interrupt": ([event("sessionEnd", reason="interrupted")], {"quiet": "session interrupted"}),
    "user text": ([said("user", "hi\nthere")], {"summary": "> hi|> there"}),
    "long user text": (
        [said("user", "\n".join(f"row {number}" for number in range(3000)))],
        {
            "summary": (
                "|".join(f"> row {number}" for number in range(20))
                + "|… 2,975 lines …|"
                + "|".join(f"> row {number}" for number in range(2995, 3000))
            )
        },
    ),
    "warning": ([event("status", type="warning", message="old file")], {"summary": "warning: old file"}),
    "failed call": (
        [failed()],
        {
            "summary": "✗ git_push - execution_failed: rejected",
            "debug": f"✗ git_push - execution_failed: rejected|{DECIDED}",
        },
    ),
    "what a person ran": (
        [started(caller="human", args={}), ended(decision=None)],
        {
            "quiet": "✓ git_push (text) (12 ms)|  pushed",
            "normal": "▸ git_push [human]|✓ git_push (text) (12 ms)|  pushed",
            "debug": "▸ git_push [human]|  {}|✓ git_push (text) (12 ms)|  pushed",
        },
    ),
    "what a person ran and was refused": (
        [failed(decision=None), event("status", type="error", message="rejected", code="command")],
        {"quiet": "rejected", "summary": "✗ git_push - execution_failed: rejected"},
    ),
    "totals at the end": (
        [
            event("usageUpdated", requestId="r", workerId="w", input=1, output=2, cached=0, cost=None, session=USED),
            ended(decision=None, value={"kind": "text", "content": ""}),
            END,
        ],
        {
            "summary": TOTAL,
            "normal": f"✓ git_push (text) (12 ms)|session completed|{TOTAL}",
            "debug": f"usage: 1 in · 2 out · cost unknown|✓ git_push (text) (12 ms)|session completed|{TOTAL}",
        },
    ),
    "streaming": (
        [
            stream("one\ntw"),
            stream("o"),
            stream("", done=True),
            said("assistant", "one\ntwo"),
            event("inputPrompt", requestId="i", prompt=">"),
        ],
        {"quiet": "one|two"},
    ),
    "tool started": (
        [started(label="Push", caller="human")],
        {
            "normal": '▸ git_push (Push) [human] branch="' + "m" * 58 + "…",
            "debug": '▸ git_push (Push) [human]|  {|    "branch": "' + "m" * 80 + '"|  }',
        },
    ),
    "result": (
        [ended(decision={"verdict": "preApproved", "risk": "low", "answeredBy": "nobody"})],
        {
            "normal": "✓ git_push (text) (12 ms)|  pushed",
            "debug": "✓ git_push (text) (12 ms)|  pushed|  decision: preApproved · risk low",
        },
    ),
    "progress": (
        [started(args={}), event("toolProgress", toolCallId="c1", progress=3, total=10, message="objects")],
        {"normal": "▸ git_push|  git_push 3/10 objects", "debug": "▸ git_push|  {}|  git_push 3/10 objects"},
    ),
    "live output is not repeated by the result": (
        [
            started(args={}),
            event("toolOutput", toolCallId="c1", stream="stdout", delta="compil"),
            event("toolOutput", toolCallId="c1", stream="stdout", delta="ing\nlin"),
            ended(decision=None, value={"kind": "exec.result", "exit_code": 0, "output": "compiling\nlin"}),
        ],
        {
            "normal": "▸ git_push|  │ compiling|  │ lin|✓ git_push - exit 0 (12 ms)",
            "debug": "▸ git_push|  {}|  │ compiling|  │ lin|✓ git_push - exit 0 (12 ms)",
        },
    ),
    "worker tree": (
        [event("workerUpdate", workerId="w2", name="analyzer", task="count", status="running", depth=1, model="m")],
        {"normal": "  ● analyzer - count (m)"},
    ),
    "plan": (
        [
            event(
                "planUpdated",
                plan=[
                    {"step": "a", "status": "completed"},
                    {"step": "b", "status": "in_progress"},
                    {"step": "c", "status": "pending"},
                ],
                explanation="why",
            )
        ],
        {"normal": "why|[x] a|[>] b|[ ] c"},
    ),
    "diffs": (
        [
            event(
                "diffSummary",
                requestId="d",
                summaries=[{"path": "/w/a", "operation": "update", "additions": 1, "deletions": 0}],
            ),
            event("diffContent", requestId="d", path="/w/a", modified="x\n\n", original="x\n", isNew=False),
        ],
        {"normal": "/w/a: +1 −0|/w/a: +1 −0|--- a/w/a|+++ b/w/a|@@ -1 +1,2 @@| x|+"},
    ),
    "manual tools": (
        [event("manualToolsAvailable", tools=[{"name": "x"}, {"name": "git_push", "category": "Git"}])],
        {"normal": "Git: /git_push|Other: /x"},
    ),
    "server that waits": (
        [event("mcpStatus", server="git", state="pending", tools=None, error="run: x")],
        {"summary": "server git: pending: run: x"},
    ),
    "server that wants a login": (
        [event("mcpStatus", server="git", state="needs_login", tools=None)],
        {"summary": "server git: needs_login"},
    ),
    "server that answers": (
        [event("mcpStatus", server="git", state="ready", tools=3)],
        {"normal": "server git: ready"},
    ),
    "info": ([event("status", type="info", message="loaded")], {"normal": "loaded"}),
    "system message": ([said("system", "be good")], {"debug": "system: be good"}),
    "context": (
        [event("contextUsage", tokensUsed=10, tokenLimit=1000, exceeded=False)],
        {"debug": "context: 10 of 1,000 tokens"},
    ),
    "compaction": (
        [event("contextCompacted", before=9000, after=100)],
        {"normal": "context compacted: 9,000 → 100 tokens"},
    ),
    "walls": (
        [event("wallsReport", level="none", guarantees=[], missing=["G1"], cause="no bwrap", fix="install it")],
        {"normal": "walls: none; without G1; no bwrap; install it"},
    ),
    "start": (
        [
            event(
                "sessionStarted",
                worker="main",
                model="m:x",
                mode="chat",
                approvalMode="interactive",
                zones=[{"name": "w", "mode": "rw"}],
                resumed=True,
            )
        ],
        {"normal": "main on m:x · approval interactive · zones /w rw · resumed"},
    ),
}


def run(level: str, events: list[tuple[str, dict[str, Any]]], worker: str = "root") -> list[str]:
    formatter = create_trace_formatter(level)
    shown: list[str] = []
    bus = EventBus("s")
    bus.on("*", lambda event: shown.extend(plain_text(formatter.format(event)).splitlines()))
    for kind, data in events:
        bus.emit(kind, data, worker)
    return shown


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", ROWS)
def test_u11_each_row_at_each_level(row: str, level: str) -> None:
    events, texts = ROWS[row]
    wanted = ""
    for each in LEVELS[: LEVELS.index(level) + 1]:
        wanted = texts.get(each, wanted)
    shown = run(level, events)
    raw = [line for line in shown if line.startswith("event {")]
    assert "|".join(line for line in shown if line not in raw) == wanted
    assert len(raw) == (len(events) if level == "debug" else 0)


def test_u11_a_whole_run_at_quiet_is_the_answer_and_a_newline() -> None:
    events = [
        said("user", "push it"),
        stream("I will"),
        stream("", done=True),
        said("assistant", "I will"),
        started(),
        failed(),
        stream("Done", requestId="r2"),
        stream("", done=True, requestId="r2"),
        said("assistant", "Done\n\n"),
        (
            "usageUpdated",
            {"requestId": "r", "workerId": "w", "input": 1, "output": 2, "cached": 0, "cost": None, "session": USED},
        ),
        END,
    ]
    assert run("quiet", events) == ["Done"]
    summary = run("summary", events)
    assert summary == [
        "> push it",
        "✗ git_push - execution_failed: rejected",
        "Done",
        f"{TOTAL}, 1 failed",
    ]


@pytest.mark.parametrize(
    ("severity", "levels"),
    [("critical", LEVELS), ("warning", LEVELS[1:]), ("note", LEVELS[2:])],
)
def test_what_a_command_left_behind_is_shown_by_how_grave_it_is(severity: str, levels: list[str]) -> None:
    left = {"kind": "hidden_code", "severity": severity, "text": "look here", "paths": []}
    for level in LEVELS:
        formatter = create_trace_formatter(level)
        rows = plain_text(formatter.format(Event(*ended(leftovers=[left]))))
        assert (f"left behind ({severity}): look here\n" in rows) is (level in levels)
    created = create_trace_formatter("summary").format(Event(*ended(protectedCreated=["/w/.envrc"])))
    assert plain_text(created) == "  protected file created: /w/.envrc\n"


def test_words_before_a_request_that_failed_are_no_answer() -> None:
    events = [said("assistant", "Let me see"), stream("Hm", requestId="r2"), ("sessionEnd", {"reason": "interrupted"})]
    assert run("quiet", events) == ["session interrupted"]


def test_sub_workers_speak_under_their_name_and_never_the_final_answer() -> None:
    child = {"workerId": "w2", "name": "analyzer", "task": "t", "status": "running", "depth": 1}
    for level, wanted in (
        ("quiet", ["mine"]),
        ("normal", ["  ● analyzer - t", "analyzer │ theirs", "mine", "session completed"]),
    ):
        formatter = create_trace_formatter(level)
        shown = ""
        for kind, data, worker in (
            ("workerUpdate", child, "w2"),
            (*said("assistant", "theirs"), "w2"),
            (*said("assistant", "mine"), "root"),
            (*said("assistant", "theirs"), "w2") if level == "quiet" else ("status", {"type": "x"}, ""),
            (*END, "root"),
        ):
            shown += plain_text(formatter.format(Event(kind, data, worker_id=worker)))
        assert shown.splitlines() == wanted
    assert create_trace_formatter("normal").worker_tree() == []


def test_the_calls_of_a_sub_worker_carry_its_name() -> None:
    child = {"workerId": "w2", "name": "analyzer", "task": "t", "status": "running", "depth": 1}
    output = {"toolCallId": "c1", "stream": "stdout", "delta": "half\n"}
    events = (
        ("workerUpdate", child),
        started(args={}),
        ("toolProgress", {"toolCallId": "c1", "progress": 1}),
        ("toolOutput", output),
        ended(decision=None),
        failed(decision=None),
    )
    for level, wanted in (
        ("quiet", []),
        ("summary", ["analyzer │ ✗ git_push - execution_failed: rejected"]),
        (
            "normal",
            [
                "  ● analyzer - t",
                "analyzer │ ▸ git_push",
                "analyzer │   git_push 1",
                "analyzer │   │ half",
                "analyzer │ ✓ git_push (text) (12 ms)",
                "analyzer │   pushed",
                "analyzer │ ✗ git_push - execution_failed: rejected",
            ],
        ),
    ):
        formatter = create_trace_formatter(level)
        shown = "".join(plain_text(formatter.format(Event(kind, data, worker_id="w2"))) for kind, data in events)
        assert shown.splitlines() == wanted


def test_withdrawn_text_is_called_so_and_replaced_text_continues() -> None:
    cut = [stream("wrong\nhalf"), stream("", discarded=True), stream("right\n"), stream("", done=True)]
    assert run("normal", cut) == ["wrong", "(withdrawn: the text above does not count)", "right"]
    again = [stream("one\ntw"), stream("", whole="one\ntwo\nthree"), stream("", done=True)]
    assert run("normal", again) == ["one", "two", "three"]


def test_thinking_ends_where_the_text_begins_and_an_interrupted_message_is_not_repeated() -> None:
    events = [
        stream("let me\nsee", channel="thinking"),
        stream("half"),
        stream("", done=True),
        said("assistant", "half\n[interrupted]"),
    ]
    assert run("normal", events) == ["let me", "see", "half", "[interrupted]"]
    formatter = create_trace_formatter("normal")
    assert formatter.format(Event(*events[0])) == [[("thinking", "let me")]]
    assert run("normal", [stream("hm", channel="thinking"), stream("", done=True)]) == ["hm"]
    both = [stream("a\n", channel="thinking"), stream("b\n"), stream("", done=True, discarded=True)]
    assert run("normal", both) == ["a", "b", "(withdrawn: the text above does not count)"]


def test_what_still_waits_can_be_had_without_an_end() -> None:
    quiet, normal = create_trace_formatter("quiet"), create_trace_formatter("normal")
    quiet.format(Event(*said("assistant", "so far")))
    normal.format(Event(*stream("half a line")))
    assert plain_text(quiet.rest()) == "so far\n"
    assert plain_text(normal.rest()) == "half a line\n"


def test_the_level_is_one_of_four_and_can_be_changed_on_the_way() -> None:
    with pytest.raises(ValueError, match="loud"):
        create_trace_formatter("loud")
    formatter = create_trace_formatter(TraceLevel.QUIET)
    assert isinstance(formatter, TraceFormatter)
    info = Event("status", {"type": "info", "message": "hello"})
    assert formatter.format(info) == []
    formatter.level = TraceLevel.NORMAL
    assert formatter.format(info) == [[("dim", "hello")]]


def test_with_a_width_words_of_ours_are_broken_between_words_and_text_of_others_stays_as_it_is() -> None:
    formatter = create_trace_formatter("normal", lambda: 30)
    notice = Event("status", {"type": "warning", "message": "the file forge.yaml is older than the program itself"})
    table = Event("status", {"type": "info", "code": "command", "message": "  --to  text  where the branch is to go"})
    asked = Event("message", {"message": {"role": "user", "content": "word " * 20}})
    assert plain_text(formatter.format(notice)).splitlines() == [
        "warning: the file forge.yaml",
        "  is older than the program",
        "  itself",
    ]
    assert plain_text(formatter.format(table)).splitlines() == [
        "  --to  text  where the",
        "              branch is to go",
    ]
    assert plain_text(formatter.format(asked)) == "> " + "word " * 20 + "\n"


CHANGED = "changed 2 files (+3 −1) · /changes · /undo\n"


@pytest.mark.parametrize("level", LEVELS)
def test_a_turn_that_changed_files_ends_with_one_line(level: str) -> None:
    formatter = create_trace_formatter(level)
    one = files_changed(1, edited("/w/a", 1, 1))
    two = files_changed(1, edited("/w/a", 1, 0), created("/w/b", 1), call="c2")
    by_hand = files_changed(0, edited("/w/c", 9, 9))
    shown = [plain_text(formatter.format(Event("filesChanged", data))) for data in (one, two, by_hand)]
    assert shown == ["", "", ""] or level == "debug"
    prompt = Event("inputPrompt", {"requestId": "r", "prompt": "> "})
    ended, again = (plain_text(formatter.format(prompt)) for _ in range(2))
    assert ended.startswith(CHANGED) == (level != "quiet") and "changed" not in again


def test_a_turn_by_hand_has_no_such_line_and_a_rewind_is_said() -> None:
    formatter = create_trace_formatter("normal")
    formatter.format(Event("filesChanged", files_changed(0, edited("/w/a"))))
    assert formatter.format(Event("sessionEnd", {"reason": "interrupted"})) != []
    went = {"turn": 2, "message": "and then", "conversation": True, "files": True}
    assert plain_text(formatter.format(Event("rewound", went))) == (
        "rewound to message 2 (conversation and files): and then\n"
    )
