"""Rules at work: matching, cover, scope, trust, and files that change while a session runs (A14-A26, A42)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.config.trust import TrustStore
from golem_forge.config.yaml_file import YamlFile, parse_yaml
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Mark
from golem_forge.core.errors import ConfigError
from golem_forge.policy.facts import McpName
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.files import RulesUnusable
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.match import NO_RULES
from golem_forge.policy.rules.model import RuleOrigin
from golem_forge.tools.tool import SourceKind

from .conftest import Place, bases_of, call, effect


def rules(*lines: str) -> str:
    return "rules:\n" + "".join(f"  - {line}\n" for line in lines)


ALLOW = "verdict: preApproved"


@table(
    ("allowed", "runs", "asks"),
    [
        ("[git, status]", ["git status -s", "git status"], ["git stash", "git -C x status"]),
        ("[git, stash]", ["git stash list", "git stash push -m x"], ["git switch x"]),
        (
            "[git, [log, diff, branch]]",
            ["git log -5", "git diff HEAD~1 -- src", "git log -p --stat", "git branch new"],
            [
                "git log --output=x",
                "git log --outpu=x",
                "git diff --ext-diff",
                "git log -p --textconv",
                "git diff -O x",
                "git log --author -- --output=x",
                "git branch -d x",
                "git diff --no-index a b",
            ],
        ),
        ("[git]", ["git commit -m x", "git log"], ["git --exec-path=x log", "git log --output=x"]),
        ("[cat]", ["cat a && cat b"], ["cat a && curl u", "cat <<E > f", "curl u && cat a"]),
        ("[npm, [ci, test]]", ["npm ci", "npm test -- -x"], ["npm run x", "npm"]),
        ("[git, log]", ["git log | head -3", "cd src && git log"], ["git log > f", "git log | sh"]),
        ("[make, test]", ["bash -lc 'make test'"], ["bash -lc make test", "FOO=1 make test"]),
        ("[/workspace/ls]", ["./ls", "/workspace/ls", "cd src && ../ls"], ["./a", "/bin/lsblk"]),
    ],
)
def test_commands_that_are_allowed(place: Place, allowed: str, runs: list[str], asks: list[str]) -> None:
    book = place.book(rules(f"{{command: {allowed}, {ALLOW}}}"))
    assert {text: place.lifted(book, text) for text in runs} == dict.fromkeys(runs, "runs")
    assert {text: place.lifted(book, text) for text in asks} == dict.fromkeys(asks, "asks")


def test_a20_a_program_is_what_its_name_says(place: Place) -> None:
    book = place.book(rules(f"{{command: [ls], {ALLOW}}}"))
    # -Z is not in the table of the prover, so only the rule can let these through
    assert place.lifted(book, "ls -Z") == "runs"
    assert place.lifted(book, "/bin/ls -Z") == "runs"
    assert [place.lifted(book, text) for text in ("lsof", "./ls", "/workspace/ls -Z", "/opt/x/ls -Z")] == ["asks"] * 4


def test_a15_the_strictest_rule_wins_in_any_order(place: Place) -> None:
    lines = [
        f"{{command: [git, [log, push]], {ALLOW}}}",
        "{command: [git, push], verdict: blocked, reason: releases are made by hand}",
    ]
    for text in (rules(*lines), rules(*reversed(lines))):
        book = place.book(text)
        outcome = place.ask(book, "git push origin")
        assert outcome.verdict is Verdict.BLOCKED
        assert outcome.deciding is not None and outcome.deciding.reason == "releases are made by hand"
        assert [rule.verdict for rule in outcome.matched] == [Verdict.BLOCKED, Verdict.PRE_APPROVED]
        assert place.lifted(book, "git log") == "runs"


@table("text", ["/bin/rm a", " rm a", "'rm' a", "r\\m a", "env rm a", "rm\ta", "ls; $(rm a)", "bash -c 'rm a'"])
def test_a31_what_is_blocked_is_found_in_any_disguise(place: Place, text: str) -> None:
    book = place.book(rules("{command: [rm], verdict: blocked, reason: no}"))
    assert place.lifted(book, text) == "blocked"


def test_builtin_rules_block_and_can_be_switched_off(place: Place) -> None:
    book = place.book()
    for text in ("rm -rf /", "mkfs.ext4 /dev/sda", "echo hi>/dev/sda", ":(){ :|:& };:"):
        assert place.lifted(book, text) == "blocked"
        [rule] = place.ask(book, text).matched
        assert rule.origin is RuleOrigin.BUILTIN and rule.reason
    assert place.lifted(book, "rm -rf ./tmp") == "asks"
    book = place.book("builtin_off: [wipe_device]\n")
    assert book.builtin_off == {"wipe_device"}
    assert place.lifted(book, "mkfs.ext4 /dev/sda") == "asks"
    assert place.lifted(book, "rm -rf /") == "blocked"


def test_a26_a_danger_is_accepted_by_name_and_only_for_what_the_rule_matches(place: Place) -> None:
    book = place.book(rules(f"{{command: [rm, -rf, build], exact: true, accept: [rm_force], {ALLOW}}}"))
    assert place.lifted(book, "rm -rf build") == "runs"
    for text in ("rm -rf dist", "rm -rf build dist", "rm -rf build && rm -rf dist", "sudo rm -rf build"):
        assert place.lifted(book, text) == "asks"
    assert place.ask(book, "rm -rf build && rm -rf dist").accepted == frozenset()


def test_accepting_one_danger_leaves_the_others(place: Place) -> None:
    book = place.book(rules(f"{{command: [sudo, rm], accept: [rm_force], {ALLOW}}}"))
    outcome = place.ask(book, "sudo rm -f a")
    assert outcome.covers and outcome.accepted == {"rm_force"}
    assert place.lifted(book, "sudo rm -f a") == "asks"  # `privilege` still needs a person


def test_secrets_are_accepted_by_a_path_rule_of_the_person(place: Place) -> None:
    book = place.book(rules(f"{{path: /workspace/.env, access: [read], accept: [secret_path], {ALLOW}}}"))
    secret = effect("read", "/workspace/.env", zone_verdict=Verdict.PRE_APPROVED, marks=(Mark.SECRET_PATH,))
    other = effect("read", "/workspace/x.pem", zone_verdict=Verdict.PRE_APPROVED, marks=(Mark.SECRET_PATH,))
    changed = effect("delete", "/workspace/.env", zone_verdict=Verdict.PRE_APPROVED, marks=(Mark.SECRET_PATH,))
    assert place.lifted(book, call(secret)) == "runs"
    assert place.lifted(book, call(secret, other)) == "asks"
    for access in ("[read]", "[read, write, delete]"):  # what moves a secret file reads and deletes it
        book = place.book(rules(f"{{path: /workspace/.env, access: {access}, accept: [secret_path], {ALLOW}}}"))
        assert place.lifted(book, call(secret, changed)) == "asks", access


def test_obeyed_paths_are_accepted_by_a_path_rule_of_the_person(place: Place) -> None:
    obeyed = effect(
        "write", "/workspace/.github/workflows/a.yml", zone_verdict=Verdict.PRE_APPROVED, marks=(Mark.OBEYED_PATH,)
    )
    rule = "path: /workspace/.github/**, access: [write]"
    assert place.lifted(place.book(rules(f"{{{rule}, {ALLOW}}}")), call(obeyed)) == "asks"
    assert place.lifted(place.book(rules(f"{{{rule}, accept: [obeyed_path], {ALLOW}}}")), call(obeyed)) == "runs"


PATHS = rules(
    f"{{path: /workspace/docs/**, access: [write], {ALLOW}}}",
    "{path: /workspace/docs/secret/**, verdict: ask}",
    "{path: /workspace/.env, access: [read], verdict: blocked, reason: keys}",
)


@table(
    ("verb", "path", "expected"),
    [
        ("write", "/workspace/docs/a.md", "runs"),
        ("write", "/workspace/docs/x/y.md", "runs"),
        ("write", "/workspace/docs/secret/y", "asks"),
        ("delete", "/workspace/docs/a.md", "asks"),
        ("write", "/workspace/a.md", "asks"),
        ("read", "/workspace/.env", "blocked"),
        ("write", "/workspace/.env", "asks"),
        ("read", "/workspace/docs/a.md", "runs"),
    ],
)
def test_path_rules(place: Place, verb: str, path: str, expected: str) -> None:
    base = Verdict.PRE_APPROVED if verb == "read" else Verdict.ASK
    assert place.lifted(place.book(PATHS), call(effect(verb, path, zone_verdict=base))) == expected


def test_a21_a_path_rule_also_catches_a_commands_operand(place: Place) -> None:
    book = place.book(rules("{path: /workspace/a, access: [read], verdict: blocked, reason: keys}"))
    assert place.lifted(book, "cat a") == "blocked"
    assert place.lifted(book, "cd src && cat ../a") == "blocked"
    assert place.lifted(book, "cat b") == "runs"


def test_one_uncovered_effect_leaves_the_call_at_its_base(place: Place) -> None:
    book = place.book(PATHS)
    inside = effect("write", "/workspace/docs/a", zone_verdict=Verdict.ASK)
    outside = effect("write", "/workspace/b", zone_verdict=Verdict.ASK)
    free = effect("write", "/workspace/tmp", zone_verdict=Verdict.PRE_APPROVED)
    assert place.ask(book, call(inside, free)).covers
    outcome = place.ask(book, call(inside, outside))
    assert outcome.verdict is Verdict.PRE_APPROVED and not outcome.covers


def test_claimed_effects_are_not_covered_piece_by_piece(place: Place) -> None:
    book = place.book(PATHS)
    claimed = call(effect("write", "/workspace/docs/a", zone_verdict=Verdict.ASK), source=SourceKind.CUSTOM)
    assert place.ask(book, claimed).verdict is Verdict.PRE_APPROVED
    assert not place.ask(book, claimed).covers
    blocked = call(effect("read", "/workspace/.env"), source=SourceKind.CUSTOM)
    assert place.ask(book, blocked).verdict is Verdict.BLOCKED


def test_tool_rules_cover_the_whole_call_of_any_source(place: Place) -> None:
    book = place.book(rules(f"{{tool: create_issue, args: {{repo: {{one_of: [a/b]}}, draft: true}}, {ALLOW}}}"))
    for source in SourceKind:
        good = call(tool="create_issue", args={"repo": "a/b", "draft": True, "x": 1}, source=source, says=False)
        assert place.ask(book, good).covers
    for args in ({"repo": "a/c", "draft": True}, {"repo": "a/b", "draft": 1}, {"repo": "a/b"}):
        assert place.ask(book, call(tool="create_issue", args=args, says=False)) is NO_RULES
    assert place.ask(book, call(tool="create_issues", args={"repo": "a/b", "draft": True})) is NO_RULES


@table(
    ("test", "inside", "outside"),
    [("{min: 2}", (2, 3.5), (1, 1.99)), ("{max: 5}", (5, -1), (5.01, 6)), ("{min: 2, max: 5}", (2, 5), (1, 6))],
)
def test_numbers_up_to_and_with_the_bound(
    test: str, inside: tuple[float, ...], outside: tuple[float, ...], place: Place
) -> None:
    book = place.book(rules(f"{{tool: t, args: {{n: {test}}}, {ALLOW}}}"))

    def covered(value: object) -> bool:
        return place.ask(book, call(args={"n": value}, says=False)).covers

    assert [covered(value) for value in inside] == [True, True]
    assert [covered(value) for value in (*outside, True, "3", None)] == [False] * 5


def test_mcp_consent_holds_while_pinned_and_refusal_always(place: Place) -> None:
    book = place.book(
        rules(
            f"{{mcp: {{server: github, tool: [get_issue, 'list_*']}}, {ALLOW}}}",
            "{mcp: {server: '*', tool: 'delete*'}, verdict: blocked, reason: no}",
        )
    )

    def mcp(server: str, tool: str, *, pinned: bool) -> Verdict | None:
        name = McpName(server=server, tool=tool, pinned=pinned)
        outcome = place.ask(book, call(tool="x", source=SourceKind.MCP, mcp=name, says=False))
        assert outcome.covers is (outcome.verdict is Verdict.PRE_APPROVED)
        return outcome.verdict

    assert mcp("github", "list_issues", pinned=True) is Verdict.PRE_APPROVED
    assert mcp("github", "list_issues", pinned=False) is None
    assert mcp("gitlab", "list_issues", pinned=True) is None
    assert mcp("any", "delete_all", pinned=False) is Verdict.BLOCKED


def test_host_rules(place: Place) -> None:
    book = place.book(
        rules(f"{{host: API.Example.com., {ALLOW}}}", f"{{host: '*.cdn.com', ports: [80, 443], {ALLOW}}}")
    )
    for target, expected in [
        ("api.example.com:443", "runs"),
        ("Api.Example.COM.:443", "runs"),
        ("api.example.com:80", "asks"),
        ("x.api.example.com:443", "asks"),
        ("x.cdn.com:80", "runs"),
        ("cdn.com:443", "asks"),
        ("mcp://x.cdn.com", "asks"),
    ]:
        assert place.lifted(book, call(effect("net", target))) == expected, target


def test_scope_narrows(place: Place, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(place.workspace)
    book = place.book(
        rules(
            f"{{tool: a, scope: {{worker: 'main/*'}}, {ALLOW}}}",
            f"{{tool: b, scope: {{project: {tmp_path / 'alias'}}}, {ALLOW}}}",
            f"{{tool: c, scope: {{until: '2001-01-01'}}, {ALLOW}}}",
            f"{{tool: d, scope: {{until: 2999-01-01T00:00:00Z, worker: main}}, {ALLOW}}}",
        )
    )

    def matches(tool: str, **more: str) -> bool:
        return place.ask(book, call(tool=tool, says=False, **more)).verdict is not None  # type: ignore[arg-type]

    assert matches("a", worker="main/coder")
    assert not matches("a", worker="main") and not matches("a", worker="main/coder/x")
    assert matches("b", project=str(place.workspace))
    assert not matches("b", project=str(tmp_path)) and not matches("b")
    assert not matches("c")
    assert matches("d", worker="main") and not matches("d", worker="other")


def test_without_rules_only_commands_are_looked_at(place: Place) -> None:
    book = place.book()
    assert place.ask(book, call(effect("write", "/workspace/a"))) is NO_RULES
    assert place.ask(book, "ls") is NO_RULES


# Files that change


def test_a_broken_file_at_start_is_a_config_error(place: Place) -> None:
    for path in (place.home.rules, place.home.remembered):
        place.write(path, "rules:\n  - {tool: x}\n")
        with pytest.raises(ConfigError, match=r"\.yaml:2: .*'verdict' is missing"):
            place.book()
        path.unlink()


def test_a24_a_file_that_breaks_later_stops_calls_with_effects_until_repaired(place: Place) -> None:
    good = rules("{tool: x, verdict: blocked, reason: no}")
    book = place.book(good)
    write = call(effect("write", "/workspace/a", zone_verdict=Verdict.ASK), tool="x")
    assert place.ask(book, write).verdict is Verdict.BLOCKED
    place.user_rules("rules:\n  - tool: x\n    verdit: ask\n")
    for _ in range(2):
        with pytest.raises(RulesUnusable) as caught:
            place.ask(book, write)
        assert (caught.value.line, caught.value.status) == (3, "policy_denied")
        assert caught.value.file.endswith("/rules.yaml") and "did you mean 'verdict'" in caught.value.problem
        assert str(caught.value) == f"{caught.value.file}:3: {caught.value.problem}"
    with pytest.raises(RulesUnusable):
        place.ask(book, call(tool="x", says=False))
    assert place.ask(book, call(tool="x")).verdict is Verdict.BLOCKED  # no effects: the last good rules serve
    place.user_rules(good)
    assert place.ask(book, write).verdict is Verdict.BLOCKED


def test_edits_of_one_file_act_while_another_is_broken_and_after(place: Place) -> None:
    book = place.book()
    place.write(place.home.remembered, "broken: [")
    place.user_rules(rules("{tool: x, verdict: ask}"))
    with pytest.raises(RulesUnusable):
        book.current()
    place.home.remembered.unlink()
    assert place.ask(book, call(tool="x", says=False)).verdict is Verdict.ASK


def test_a_large_file_is_read_as_yaml_once_and_says_the_same_ever_after(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = (
        f"{{command: [make, 'target-{n}'], verdict: blocked, reason: 'nobody makes this one any more'}}"
        for n in range(300)
    )
    place.user_rules(rules(*many, f"{{tool: x, args: {{n: {{max: 5}}}}, {ALLOW}}}"))

    def refuse(data: bytes, name: str) -> YamlFile:
        assert len(data) < 1000, "it was parsed again"
        return parse_yaml(data, name)

    for _ in range(2):
        book = place.book()
        assert place.lifted(book, "make target-299") == "blocked" and place.lifted(book, "make target-300") == "asks"
        assert [place.ask(book, call(tool="x", args={"n": n})).covers for n in (5, 6)] == [True, False]
        assert place.ask(book, "make target-7").matched[0].line == 9
        monkeypatch.setattr("golem_forge.policy.rules.files.parse_yaml", refuse)


def test_files_are_looked_at_again_after_20_ms_and_not_before(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.policy.rules.book.CHECK_EVERY", 0.02)
    place.clock.step = 0.0
    book = place.book(rules("{tool: x, verdict: ask}"))
    facts = call(tool="x", says=False)
    assert place.ask(book, facts).verdict is Verdict.ASK
    place.user_rules("rules: []\n")
    place.clock.now += 0.019
    assert place.ask(book, facts).verdict is Verdict.ASK
    place.clock.now += 0.002
    assert place.ask(book, facts).verdict is None
    place.user_rules(rules("{tool: x, verdict: ask}"))
    assert place.ask(book, facts).verdict is None
    place.clock.now += 0.02
    assert place.ask(book, facts).verdict is Verdict.ASK


def test_an_edit_of_the_same_size_within_one_tick_is_noticed(place: Place) -> None:
    book = place.book()
    facts = call(tool="x", says=False)
    for number in range(20):
        tool = "x" if number % 2 else "y"
        place.user_rules(rules(f"{{tool: {tool}, verdict: ask}}"))
        assert (place.ask(book, facts).verdict is not None) is (tool == "x")


# Projects


def project_book(place: Place, store: TrustStore) -> RuleBook:
    return place.book(project_root=place.workspace, project_trusted=lambda: store.trusted(place.workspace))


def test_a19_project_rules_count_only_while_trusted_byte_for_byte(place: Place) -> None:
    store = TrustStore(place.home)
    text = rules("{tool: x, verdict: ask, reason: aa}")
    place.project_rules(text)
    book = project_book(place, store)
    facts = call(tool="x", says=False)
    assert place.ask(book, facts).verdict is None
    [notice] = book.notices
    assert ".forge/rules.yaml is ignored" in notice and "forge trust" in notice
    [line] = [line for line in book.list() if line.rule.origin is RuleOrigin.PROJECT]
    assert line.inactive == "the project is not trusted"

    store.give(place.workspace)
    assert place.ask(book, facts).verdict is Verdict.ASK
    assert book.notices == ()
    [rule] = place.ask(book, facts).matched
    assert (rule.origin, rule.file, rule.line) == (RuleOrigin.PROJECT, ".forge/rules.yaml", 2)

    place.project_rules(text.replace("aa", "ab"))
    assert place.ask(book, facts).verdict is None and book.notices
    place.project_rules(text)
    assert place.ask(book, facts).verdict is Verdict.ASK
    (place.workspace / "forge.yaml").write_text("")  # part of what was trusted
    assert place.ask(book, facts).verdict is None
    store.give(place.workspace)
    assert place.ask(book, facts).verdict is Verdict.ASK
    store.withdraw(place.workspace)
    assert place.ask(book, facts).verdict is None


def test_an_untrusted_project_cannot_stop_a_session_with_a_broken_file(place: Place) -> None:
    place.project_rules("rules: [")
    store = TrustStore(place.home)
    assert project_book(place, store).notices
    store.give(place.workspace)
    with pytest.raises(ConfigError, match=r"\.forge/rules\.yaml:1"):
        project_book(place, store)


def test_a26_a_trusted_project_still_cannot_accept(place: Place) -> None:
    store = TrustStore(place.home)
    place.project_rules(rules(f"{{command: [rm, -rf, build], exact: true, accept: [rm_force], {ALLOW}}}"))
    store.give(place.workspace)
    with pytest.raises(ConfigError, match="'accept' is allowed only in your own rules"):
        project_book(place, store)


def test_project_rules_behind_a_link_never_count(place: Place, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(rules("{tool: x, verdict: ask}"))
    (place.workspace / ".forge").mkdir()
    (place.workspace / ".forge" / "rules.yaml").symlink_to(elsewhere)
    store = TrustStore(place.home)
    store.give(place.workspace)
    book = project_book(place, store)
    assert place.ask(book, call(tool="x", says=False)).verdict is None
    assert "link" in book.notices[0]


# The session's own


def test_session_rules_come_and_go(place: Place) -> None:
    book = place.book()
    facts = place.command("make test")
    rule = book.add_session_rule(make_rule({"command": ["make", "test"], "verdict": "preApproved"}, RuleOrigin.SESSION))
    book.add_session_rule(rule)
    assert place.lifted(book, facts) == "runs"
    [line] = [line for line in book.list() if line.rule.origin is RuleOrigin.SESSION]
    assert line.rule == rule
    assert book.remove([rule.id, "nothing"]) == (rule.id,)
    assert place.lifted(book, facts) == "asks"


def test_rules_can_be_tried_before_they_exist(place: Place) -> None:
    book = place.book()
    rule = make_rule({"command": ["make", "test"], "verdict": "preApproved"}, RuleOrigin.SESSION)
    assert place.ask(book, "make test", (rule,)).covers
    assert not place.ask(book, "make test").covers


def test_in_strict_mode_only_the_session_may_allow(place: Place) -> None:
    book = place.book(rules(f"{{command: [make, test], {ALLOW}}}", "{command: [make, x], verdict: ask}"))
    facts, asked = place.command("make test"), place.command("make x")
    bases = bases_of(facts)
    assert book.evaluate(facts, bases).covers
    assert book.evaluate_session_only(facts, bases).verdict is None
    assert book.evaluate_session_only(asked, bases_of(asked)).verdict is Verdict.ASK
    book.add_session_rule(make_rule({"command": ["make", "test"], "verdict": "preApproved"}, RuleOrigin.SESSION))
    assert book.evaluate_session_only(facts, bases).covers


def test_the_list_says_what_acts_and_how_often(place: Place) -> None:
    book = place.book(
        "builtin_off: [fork_bomb]\n"
        + rules(f"{{id: mine, tool: x, {ALLOW}}}", f"{{id: old, tool: y, scope: {{until: '2001-01-01'}}, {ALLOW}}}")
    )
    outcome = place.ask(book, call(tool="x", says=False))
    book.count(outcome)
    book.count(outcome)
    lines = {line.rule.id: line for line in book.list()}
    assert set(lines) == {"wipe_root", "wipe_device", "fork_bomb", "mine", "old"}
    assert lines["fork_bomb"].inactive == "builtin_off" and lines["old"].inactive == "ended 2001-01-01"
    assert (lines["mine"].inactive, lines["mine"].hits) == ("", 2) and lines["mine"].last_used
    shown = lines["mine"].to_json()
    assert (shown["source"], shown["verdict"], shown["matches"], shown["line"]) == ("user", "preApproved", "tool x", 3)


def test_hits_say_what_each_rule_matched(place: Place) -> None:
    book = place.book(rules(f"{{id: g, command: [git, log], {ALLOW}}}", "{id: p, path: /workspace/a, verdict: ask}"))
    hits = place.ask(book, "git log && cat a").hits
    assert [(hit.rule.id, hit.subject) for hit in hits] == [("g", "git log"), ("p", "/workspace/a")]
