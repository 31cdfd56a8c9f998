"""Results by kind and display hint: limits, headers and texts (ui.md §8; U20, U21, U22)."""

from __future__ import annotations

from typing import Any

import pytest

from golem_forge.core.decisions import Status
from golem_forge.tools.results import to_result
from golem_forge.ui.render.lines import plain_text, width_of
from golem_forge.ui.render.results import result_after_output, result_lines


def outcome(value: Any = None, **fields: Any) -> dict[str, Any]:
    data = {
        "toolCallId": "c1",
        "toolName": "look",
        "args": {},
        "status": "success",
        "durationMs": 12.3,
        "decision": None,
        "truncated": False,
        **fields,
    }
    return data if value is None else {**data, "value": value}


def shown(value: Any = None, **fields: Any) -> list[str]:
    return plain_text(result_lines(outcome(value, **fields))).splitlines()


def custom(data: Any, view: str = "", **more: Any) -> dict[str, Any]:
    hints = {"display": {"preferredView": view}} if view else {}
    return {"kind": "x.y", "data": data, **hints, **more}


def test_the_header_has_the_summary_or_the_kind() -> None:
    assert shown(custom("hello", summary="3 branches")) == ["✓ look - 3 branches (12 ms)", "  hello"]
    assert shown(custom("hello")) == ["✓ look (x.y) (12 ms)", "  hello"]
    assert shown() == ["✓ look (12 ms)"]
    assert shown(durationMs=75_432) == ["✓ look (75.4 s)"]
    assert shown(durationMs=3_024) == ["✓ look (3.0 s)"] and shown(durationMs=999.4) == ["✓ look (999 ms)"]


@pytest.mark.parametrize("status", sorted({*Status} - {Status.SUCCESS}))
def test_u22_what_did_not_succeed_never_has_a_check_mark(status: str) -> None:
    wrote = {"kind": "diff", "path": "/w/a", "modified": "x\n", "isNew": True, "bytesWritten": 2}
    lines = shown(wrote, status=status, error="disk full\nreally")
    assert lines[0] == f"✗ look - {status}: disk full really"
    assert not any("✓" in line for line in lines)
    assert shown(status=status) == [f"✗ look - {status}"]


def test_u20_text_is_cut_at_500_characters_and_says_how_many_more() -> None:
    lines = shown({"kind": "text", "content": "a" * 600})
    assert lines[1:] == ["  " + "a" * 500, "  ... (100 more chars) · display cut"]
    assert shown({"kind": "text", "content": "a" * 500})[1:] == ["  " + "a" * 500]


@pytest.mark.parametrize(
    "returned",
    ["plain", {"a": 1}, {"kind": "git.status", "data": {"clean": True}}, 10**400, b"\xff\x00", float("nan"), [1, [2]]],
    ids=lambda value: type(value).__name__,
)
def test_u20_whatever_a_tool_returns_is_rendered(returned: Any) -> None:
    lines = shown(to_result(returned).value)
    assert lines[0].startswith("✓ look")
    assert len(lines) > 1


def test_u20_cycles_and_raw_objects_do_not_crash_even_when_they_are_in_the_event() -> None:
    cyclic: dict[str, Any] = {"kind": "x.y"}
    cyclic["data"] = cyclic
    assert any("(cycle)" in line for line in shown(cyclic))
    assert shown(custom(object()))[1] == "  <object>"
    assert shown("no mapping at all") == ["✓ look (12 ms)", "  no mapping at all"]


def test_u20_hidden_shows_nothing_unless_it_failed() -> None:
    secret = custom("not for eyes", "hidden")
    assert shown(secret) == []
    assert shown(secret, status="timeout", error="too slow") == ["✗ look - timeout: too slow"]


def test_a_table_has_the_columns_of_its_first_row() -> None:
    rows = [{"name": "a", "size": 1}, {"name": "bb", "other": True}]
    assert shown(custom(rows, "table"))[1:] == ["  name  size", "  ────  ────", "  a     1", "  bb"]


def test_a_table_is_cut_at_20_rows_and_30_columns_of_a_cell_with_wide_characters_counted() -> None:
    rows = [{"name": "日本語" * 20, "n": at} for at in range(25)]
    lines = [line[2:] for line in shown(custom(rows, "table"))[1:]]
    assert len(lines) == 2 + 20 + 1
    assert lines[-1] == "... and 5 more · display cut"
    first = lines[2].split("  ")[0]
    assert width_of(first.rstrip()) in (29, 30)
    assert first.rstrip().endswith("…")
    assert lines[12].endswith("  10")
    assert width_of(lines[12]) == 30 + 2 + 2


@pytest.mark.parametrize("data", [{"a": 1}, [1, 2], [{"a": 1}, 2], [], "text"])
def test_u20_a_table_of_no_rows_is_a_tree(data: Any) -> None:
    assert shown(custom(data, "table"))[1:] == shown(custom(data, "tree"))[1:] or isinstance(data, str)
    assert "────" not in "".join(shown(custom(data, "table")))


@pytest.mark.parametrize("view", ["text", "markdown", "code"])
def test_text_views_need_a_string(view: str) -> None:
    assert shown(custom("# hi", view))[1:] == ["  hi" if view == "markdown" else "  # hi"]
    assert shown(custom({"a": [1, 2]}, view))[1:] == ["  a:", "    - 1", "    - 2"]


def test_a_tree_is_cut_at_20_items_30_keys_and_60_characters() -> None:
    data = {"items": list(range(25)), **{f"k{at}": at for at in range(35)}, "long": "unseen"}
    lines = [line[2:] for line in shown(custom(data))[1:]]
    assert lines[0:2] == ["items:", "  - 0"]
    assert lines[20:22] == ["  - 19", "  ... and 5 more · display cut"]
    assert lines[-1] == "... and 7 more · display cut"
    long = shown(custom({"v": "x" * 100}))[1]
    assert long == "  v: " + "x" * 59 + "…"


def test_a_tree_ends_however_its_limits_multiply() -> None:
    data: Any = "leaf"
    for _ in range(12):
        data = [data] * 20
    lines = shown(custom(data))
    assert len(lines) < 300
    assert lines[-1].endswith("display cut")


def test_lists_of_files_and_contents_say_how_much_there_is() -> None:
    files = {"kind": "file_list", "path": "/w", "files": [f"/w/{at}" for at in range(23)], "count": 23}
    lines = shown(files)
    assert lines[0] == "✓ look - /w (23 entries) (12 ms)"
    assert lines[1] == "  /w/0"
    assert lines[-1] == "  ... and 3 more · display cut"
    content = {"kind": "file_content", "path": "/w/a", "content": "one\r\ntwo\n", "size": 9}
    assert shown(content) == ["✓ look - /w/a (9 bytes) (12 ms)", "  one", "  two"]


def test_images_are_named_raw_is_as_it_is_and_hints_of_height_hold() -> None:
    assert shown(custom("aGk=", "image", mimeType="image/png"))[1:] == ["  [image image/png, not shown as text]"]
    assert shown(custom({"a": [1]}, "raw"))[1:] == ['  {"a":[1]}']
    tall = custom("1\n2\n3\n4", "text")
    tall["display"]["maxHeight"] = 2
    assert shown(tall)[1:] == ["  1", "  2", "  ... (2 more lines) · display cut"]
    tall["display"]["collapsed"] = True
    assert shown(tall)[1:] == ["  ... (4 lines) · display cut"]
    assert shown({**custom("x"), "display": {"preferredView": "hologram", "maxHeight": "tall"}})[1:] == ["  x"]


def test_output_cut_for_the_caller_is_not_called_a_display_cut() -> None:
    lines = shown({"kind": "text", "content": "head"}, truncated=True, outputHandle="out_7")
    assert lines[1:] == ["  head", "  output truncated, handle out_7"]
    assert "display cut" not in "".join(lines)


def test_commands_show_how_they_ended_their_output_and_what_walls_refused() -> None:
    ran = {"kind": "exec.result", "exit_code": 2, "output": "boom\n"}
    denial = {"kind": "path", "access": "write", "target": "/w/.git/x", "why": "protected", "widen": "…"}
    assert shown(ran) == ["✓ look - exit 2 (12 ms)", "  boom"]
    lines = shown(ran, status="sandbox_denied", error="blocked", denials=[denial], protectedCreated=["/w/.env"])
    assert lines == [
        "✗ look - sandbox_denied: blocked",
        "  boom",
        "  protected file created: /w/.env",
        "  blocked by the sandbox: write /w/.git/x (protected)",
        "    to allow it: …",
    ]
    assert plain_text(result_after_output(outcome(ran))) == "✓ look - exit 2 (12 ms)\n"
    assert shown({"kind": "exec.result", "session_id": 3, "output": ""}) == ["✓ look - runs on in session 3 (12 ms)"]


def test_what_a_command_left_behind_is_shown_the_gravest_first_and_each_as_one_line() -> None:
    left = [
        {"kind": "hidden_code", "severity": "note", "text": "3 files", "paths": []},
        {"kind": "nested_repository", "severity": "critical", "text": "a\nforge: all is well", "paths": []},
    ]
    ran = {"kind": "exec.result", "exit_code": 0, "output": ""}
    rows = result_lines(outcome(ran, leftovers=left, protectedCreated=["/w/.envrc"]))[1:]
    assert rows == [
        [("fail", "  left behind (critical): a\\nforge: all is well")],
        [("warn", "  protected file created: /w/.envrc")],
        [("dim", "  left behind (note): 3 files")],
    ]
    hidden = {**ran, "display": {"preferredView": "hidden"}}
    assert "left behind (critical)" in plain_text(result_lines(outcome(hidden, leftovers=left)))
    assert "left behind (critical)" in plain_text(result_after_output(outcome(ran, leftovers=left)))
    for odd in ("x", [1, None], [{"severity": {}, "paths": 3}], {"a": 1}):
        result_lines(outcome(ran, leftovers=odd, protectedCreated=odd))


def test_s49_a_denial_shows_what_a_person_could_change_and_where() -> None:
    """Proposed, not done: nothing here accepts it, and no call is made again."""
    denial = {
        "kind": "host",
        "target": "a.test:443",
        "access": "net",
        "why": "no rule",
        "widen": "rules.yaml: - {host: a.test}",
    }
    lines = result_lines(
        {"toolName": "exec_command", "status": "success", "durationMs": 1, "value": {}, "denials": [denial]}
    )
    text = plain_text(lines)
    assert "blocked by the sandbox" in text and "to allow it: rules.yaml: - {host: a.test}" in text
