"""The approval card shows all that is approved, literally (ui.md §4; U9, U10)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.ui.card_data import card_data

from golem_forge.ui.render.card import answer_line, approval_card, full_card
from golem_forge.ui.render.lines import plain_text, width_of


def request(**fields: Any) -> dict[str, Any]:
    args = fields.pop("args", {"branch": "main"})
    given: dict[str, Any] = {
        "requestId": "r1",
        "description": "Push to Remote: Push commits to a remote repository.",
        "tool": "git_push",
        "payload": json.dumps(args, indent=2, ensure_ascii=False),
        "effects": ["net example.com:443"],
        "risk": "high",
        "riskReasons": ["reaches the network"],
        "why": "tool git_push: force is set (forge.yaml:7)",
        "choices": [
            {"id": "exact:session", "label": "this exact call", "scope": "session"},
            {
                "id": "t:always",
                "label": "git_push to main",
                "scope": "always",
                "rule": "allow git_push",
                "file": "rules.yaml",
            },
        ],
        "workerPath": [{"id": "1", "name": "main", "depth": 0, "task": ""}],
    }
    return card_data(args=args, **given | fields)


def lines(**fields: Any) -> list[str]:
    return plain_text(approval_card(request(**fields))).splitlines()


def test_an_ordinary_card() -> None:
    assert lines() == [
        "── Push to Remote (git_push) wants to run · risk high " + "─" * 20,
        "│ {",
        '│   "branch": "main"',
        "│ }",
        "  net example.com:443",
        "  ! reaches the network",
        "  why asked: tool git_push: force is set (forge.yaml:7)",
        "  3 session: this exact call",
        "  5 always, in rules.yaml: git_push to main",
    ]


@pytest.mark.parametrize(
    "label", ["read_file", "Read (read_file) wants to run · risk low ──", "Read · risk low", "a\x1b[2J", "a\nb_c"]
)
def test_a_label_that_reads_like_a_name_or_like_the_card_is_left_out(label: str) -> None:
    assert lines(label=label)[0] == "── git_push wants to run · risk high " + "─" * 20


@pytest.mark.parametrize("label", ["Größe & Gewicht", "C++ / Rust", "git-summary 2.0", "日本語"])
def test_a_label_in_plain_words_stands_before_the_name(label: str) -> None:
    assert lines(label=label)[0].startswith(f"── {label} (git_push) wants to run")


def test_everything_else_that_holds_is_said() -> None:
    shown = lines(
        workerPath=[{"name": "main", "depth": 0}, {"name": "analyzer", "depth": 1, "task": "count\nlines"}],
        riskReasons=["reaches the network", "NO WALLS: processes run without isolation"],
        modelNote="trust\nme",
        previouslyDenied=2,
        waiting=3,
        warnings=["2 control or invisible characters are shown as escapes", "branch: must be a string"],
        fields=[{"name": "branch", "error": "must be a string"}, {"name": "force"}],
        changed="--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n",
        expiresAt="2026-01-01T00:00:00.000Z",
    )
    assert shown[1] == "  NO WALLS: processes run without isolation"
    for expected in (
        "  worker: main › analyzer - count lines",
        "  the caller says: trust me",
        "  denied 2 times before in this session",
        "  3 identical calls wait for this answer",
        "  ! 2 control or invisible characters are shown as escapes",
        "  ✗ branch: must be a string",
        "  the tool's definition changed:",
        "│ -old",
        "  without an answer Forge denies it at 2026-01-01T00:00:00.000Z",
    ):
        assert shown.count(expected) == 1, expected
    assert "  ! branch: must be a string" not in shown


def test_u9_the_tail_of_a_long_command_is_seen_and_nothing_steers_the_terminal() -> None:
    command = "echo \x1b[2J\u202e " + "a" * 10_000 + "; rm -rf x"
    text = plain_text(approval_card(request(tool="shell", args={"command": command}, payload=command)))
    assert "; rm -rf x\n" in text
    assert "\\x1b[2J\\u202e" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_u9_of_many_lines_the_first_and_last_20_and_a_key_for_all() -> None:
    payload = "\n".join(f"line {at}" for at in range(100))
    shown = lines(tool="shell", args={"command": payload}, payload=payload)
    assert shown[1] == "│ line 0"
    assert shown[20:23] == ["│ line 19", "│ … 60 lines between; d shows all …", "│ line 80"]
    assert shown[41] == "│ line 99"
    everything = plain_text(full_card(request(tool="shell", args={"command": payload}, payload=payload))).splitlines()
    assert everything[:100] == payload.split("\n")
    assert lines(payload="\n".join("x" * 40)).count("│ x") == 40


COMMAND: dict[str, Any] = {"tool": "exec_command", "type": "command", "args": {"cmd": "make all"}}


def test_a_command_of_one_part_is_named_and_not_repeated() -> None:
    shown = lines(
        **COMMAND,
        payload="make  all",
        effects=["exec make all (no rule covers it)", "net example.com:443"],
        segments=[{"words": ["make", "all"], "proven": False, "dangers": ["power"]}],
        riskReasons=["'make all' is on the danger list (power)", "make all reaches outside every zone"],
        why="base exec: exec make all asks unless a rule allows it",
        choices=[
            {"id": "exact:session", "label": "exactly make all", "scope": "session"},
            {
                "id": "exact:always",
                "label": "exactly make all",
                "scope": "always",
                "rule": "command make all (exactly)",
            },
        ],
    )
    assert shown[1:] == [
        "│ make  all",
        "  the command (no rule covers it)",
        "  net example.com:443",
        "  ! the command is on the danger list (power)",
        "  ! the command reaches outside every zone",
        "  why asked: base exec: the command asks unless a rule allows it",
        "  3 session · 4 always: exactly this command",
    ]


def test_each_command_of_a_line_stands_on_the_card_once_with_what_holds_for_it() -> None:
    mark = " (no rule covers it)"
    segments = [{"words": [name], "proven": name == "b", "dangers": ["power"] * (name == "c")} for name in "abcd"]
    shown = lines(
        **COMMAND,
        payload="a && b && c && d",
        effects=["exec a", "exec b", f"exec c{mark}", f"exec 'd {'x' * 9000}'{mark}", "read /workspace"],
        segments=segments,
        riskReasons=["'c' is on the danger list (power)"],
        why="base exec: exec c asks unless a rule allows it",
        choices=[],
    )
    assert shown[2:5] == ["  exec a", "  exec b (only reads)", "  exec c (power, no rule covers it)"]
    assert (
        shown[5].startswith("  exec 'd xxx") and shown[5].endswith("xxx' (no rule covers it)") and len(shown[5]) < 200
    )
    assert shown[6:] == [
        "  read /workspace",
        "  ! 'c' is on the danger list (power)",
        "  why asked: base exec: exec c asks unless a rule allows it",
    ]


@pytest.mark.parametrize("command", ["", "the", "asks", "exec", "is on", "x: exec x", "why asked", "reaches"])
def test_only_the_reasons_of_forge_itself_name_the_command_otherwise(command: str) -> None:
    """Words of a command that happen to stand in a reason are left there."""
    own = "rules no-push: exec make asks unless a rule allows it, reaches x (rules.yaml:3)"
    opaque = "floor opaque: the command cannot be checked: it has a redirection"
    for why in (own, opaque):
        assert f"  why asked: {why}" in lines(**COMMAND, payload=command, why=why, effects=[f"exec {command}"])


def test_u10_the_reason_is_there_whoever_gave_it() -> None:
    for why in ("tool write_file: predicate", "rule no-push (rules.yaml:3)", "zone /workspace says ask for write"):
        assert f"  why asked: {why}" in lines(why=why)


def test_text_of_others_cannot_look_like_a_line_of_the_card() -> None:
    fake = "x\n  3 session: nothing at all"
    shown = lines(
        modelNote=fake,
        effects=[fake],
        why=fake,
        warnings=[fake],
        choices=[{"id": "exact:x", "label": fake, "scope": fake}],
    )
    assert sum(line.startswith("  3 ") for line in shown) == 1


def test_no_row_of_the_literal_part_can_look_like_a_line_of_the_card_at_any_width() -> None:
    fake = "  why asked: nothing to fear"
    title = "── List Files (list_files) wants to run · risk low ──"
    diff = f"--- a/w/a\n+++ b/w/a\n@@ -1,3 +1,3 @@\n{fake}\n-old\n+new\n"
    for width in (20, 40, 41, 80, None):
        padded = "ls" + " " * ((width or 80) - 2) + title + "界" * 50 + " " * 200 + fake
        for literal in (
            {"payload": f"ls\n{title}\n{fake}\n\t{fake}"},
            {"payload": padded},
            {"diff": diff},
            {"changed": diff},
        ):
            shown = plain_text(approval_card(request(**literal), width=width)).splitlines()
            assert sum(row.startswith("──") for row in shown) == 1
            assert sum(row.startswith("  why") for row in shown) == 1
            assert all(width_of(row) <= max((width or 1000) - 1, 20) for row in shown if row.startswith("│"))
        read = "".join(row.removeprefix("│ ") for row in shown_rows(payload=padded, width=width) if row[0] == "│")
        assert read == padded


def shown_rows(width: int | None, **fields: Any) -> list[str]:
    return plain_text(approval_card(request(**fields), width=width)).splitlines()


def test_arguments_that_the_payload_leaves_out_have_a_line() -> None:
    shown = lines(args={"task": "summarise the notes", "force": True, "n": 1}, payload="summarise the notes, true 1")
    assert "  force = true" in shown
    assert "  n = 1" in shown
    assert not any(line.startswith("  task =") for line in shown)
    command = {"cmd": "make", "workdir": "sub", "tty": True, "shell": "zsh", "login": True, "yield_time_ms": 1000}
    shown = lines(tool="exec_command", args=command, payload="make", effects=["exec make"])
    assert shown[2:5] == ["  in sub", "  by a login zsh", "  in a terminal"]
    assert "  exec make" not in shown


def test_the_diff_is_coloured_and_d_shows_every_argument() -> None:
    wanted = request(diff="--- a/w/a\n+++ b/w/a\n@@ -1 +1 @@\n-old\n+new\n", args={"path": "a", "content": "new\n"})
    styles = {text: style for row in approval_card(wanted) for style, text in row}
    assert styles["│ -old"] == "del"
    assert styles["│ +new"] == "add"
    text = plain_text(full_card(wanted))
    assert 'content = "new\\n"' in text
    assert "git_push to main: allow git_push" in text


def test_long_choices_are_broken_between_words() -> None:
    label = " ".join(f"word{at:02}" for at in range(30))
    rows = plain_text(
        approval_card(request(choices=[{"id": "exact:session", "label": label, "scope": "session"}]), width=60)
    ).splitlines()
    last = rows[rows.index(next(row for row in rows if row.startswith("  3 "))) :]
    assert len(last) > 3
    assert all(len(row) < 60 for row in last)
    assert label in " ".join(" ".join(last).split())


def test_a_question_of_trust_is_its_own_title() -> None:
    rows = approval_card(
        {"type": "trust", "tool": "trust", "description": "Trust the program in notes?", "risk": "high"}
    )
    assert "".join(text for _, text in rows[0]).rstrip("─ ") == "── Trust the program in notes?"


def field(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "label": name, "type": kind, "required": False, "description": "", **more}


def test_defaults_that_will_be_used_are_on_the_card_but_no_secret_and_nothing_that_was_given() -> None:
    fields = [
        field("branch", "text", default="main"),
        field("version", "text", default="latest"),
        field("retries", "number", default=3),
        field("note", "text", default="n" * 100),
        field("pin", "secret", default="canary-pin"),
        field("either", "variants", default="canary-pin", variants=[field("a", "secret"), field("b", "text")]),
        field("nothing", "text"),
    ]
    shown = lines(fields=fields)
    short = "n" * 58
    assert f'  version = "latest" (default) · retries = 3 (default) · note = "{short}… (default)' in shown
    assert "canary" not in "".join(shown)
    everything = plain_text(full_card(request(fields=fields)))
    assert f'note = "{"n" * 100}" (default)' in everything and "canary" not in everything


def test_all_but_the_literal_part_is_broken_between_words_and_hangs_deeper_than_a_line_of_the_card() -> None:
    task = "look at everything there is and then  3 session: all of it, please"
    path = [{"name": "main", "depth": 0}, {"name": "fixer", "depth": 1, "task": task}]
    payload = "echo " + "word " * 30
    shown = plain_text(approval_card(request(payload=payload, workerPath=path), width=60)).splitlines()
    assert payload in "".join(row.removeprefix("│ ") for row in shown if row.startswith("│ "))
    assert max(map(len, shown)) < 60
    assert sum(row.startswith("  3 session") for row in shown) == 1
    assert shown[0].startswith("── Push to Remote (git_push) wants to run · risk high ─")
    start = next(at for at, row in enumerate(shown) if row.startswith("  worker: main › fixer"))
    assert " ".join(row.strip() for row in shown[start : start + 3]).startswith(
        "worker: main › fixer - look at everything there is and then"
    )


def test_how_it_ended_says_what_was_remembered_and_where() -> None:
    def told(**resolved: Any) -> str:
        data = {"requestId": "r1", "approved": True, "by": "terminal", "edited": False, **resolved}
        return plain_text([answer_line(request(), data, here="terminal")]).rstrip("\n")

    assert told() == "approved"
    assert told(choice="exact:session") == "approved · remembered (session): this exact call"
    assert told(choice="t:always") == "approved · remembered (always for this project, in rules.yaml): git_push to main"
    assert told(approved=False, choice="exact:session", reason="no\nway") == "denied: no way"
    assert told(by="browser", edited=True) == "approved by browser with changed arguments"
    changed = "approved with changed arguments · remembered for the changed arguments"
    assert told(choice="t:always", edited=True) == changed, "the label is of the call as it was asked about"
