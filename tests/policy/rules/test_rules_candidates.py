"""Choices offered at a prompt: narrow to wide, and none that would not let this call through (A40, A52)."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Mark
from golem_forge.policy.facts import CallFacts, McpName
from golem_forge.policy.request import Choice, RememberKind, choices, offers_from
from golem_forge.policy.risk import ANY_WALLED
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.model import RuleOrigin
from golem_forge.tools.tool import SourceKind

from .conftest import Place, bases_of, call, effect


def offered(
    place: Place, facts: CallFacts, book: RuleBook | None = None, *, full_walls: bool = False, **how: bool
) -> tuple[Choice, ...]:
    book = book or place.book()
    bases = bases_of(facts)
    readable = facts.command is not None and facts.command.parsed is not None
    return choices(
        facts,
        bases,
        critical=how.get("critical", False),
        explicit_ask=how.get("explicit_ask", False),
        grant=ANY_WALLED if full_walls and readable else "",
        would_lift=lambda rules: book.evaluate(facts, bases, rules).covers,
        remembered_file="~/.forge/remembered.yaml",
    )


def described(found: tuple[Choice, ...]) -> list[list[str]]:
    return [[rule.describe() for rule in choice.rules] or [choice.keeps.value] for choice in found]


@table(
    ("text", "expected"),
    [
        ("pytest -q tests/a.py", [["pytest -q tests/a.py (exactly)"], ["pytest"], ["grant"]]),
        ("python3 -c x", [["python3 -c x (exactly)"], ["grant"]]),
        ("git log -3", [["git log -3 (exactly)"], ["git log"], ["grant"]]),
        ("npm run build", [["npm run build (exactly)"], ["npm run build"], ["grant"]]),
        ("npm run build -- -x", [["npm run build -- -x (exactly)"], ["grant"]]),
        ("python -m pytest -q", [["python -m pytest -q (exactly)"], ["python -m pytest"], ["grant"]]),
        ("docker compose ps -a", [["docker compose ps -a (exactly)"], ["docker compose ps"], ["grant"]]),
        ("cat a && git log | wc -l", [["fingerprint"], ["git log"], ["grant"]]),
        ("cd src && make test", [["fingerprint"], ["make test"], ["grant"]]),
        ("echo hi | sh", [["fingerprint"], ["grant"]]),
        ("sh", [["fingerprint"], ["grant"]]),
        ("python3 -", [["fingerprint"], ["grant"]]),
        (
            "git log && make test",
            [["git log (exactly)", "make test (exactly)"], ["git log", "make test"], ["grant"]],
        ),
        ("a1 && a2 && a3 && a4", [["fingerprint"], ["grant"]]),
        ("make > f", [["fingerprint"]]),
    ],
)
def test_a52_commands(place: Place, text: str, expected: list[list[str]]) -> None:
    found = offered(place, place.command(text, project="/srv/app"), full_walls=True)
    assert described(found) == [
        [part if part in ("grant", "fingerprint") else f"command {part}" for part in each] for each in expected
    ]
    assert all(choice.label for choice in found)


def test_what_the_model_suggests_is_offered_if_it_fits(place: Place) -> None:
    facts = place.command("gradle test --info")
    facts.args["prefix_rule"] = ["gradle", "test", "--info"]
    assert described(offered(place, facts))[1:] == [["command gradle test --info"], ["command gradle test"]]
    for suggestion in (["gradle", "build"], ["git"], [], "gradle", [1]):
        facts.args["prefix_rule"] = suggestion
        assert described(offered(place, facts))[1:] == [["command gradle test"]]


def test_segments_that_rules_already_cover_need_no_rule(place: Place) -> None:
    book = place.book("rules:\n  - {command: [a1], verdict: preApproved}\n  - {command: [a2], verdict: preApproved}\n")
    found = offered(place, place.command("a1 && a2 && a3 && a4", project="/srv/app"), book)
    assert described(found) == [["command a3 (exactly)", "command a4 (exactly)"], ["command a3", "command a4"]]


@table("how", ["critical", "explicit_ask"])
def test_critical_and_hand_written_asks_are_kept_exactly_or_not_at_all(place: Place, how: str) -> None:
    [only] = offered(place, place.command("git log"), full_walls=True, **{how: True})
    assert (only.keeps, only.lifetimes, only.file) == (RememberKind.FINGERPRINT, ("session",), "")


def test_the_widest_choice_is_what_walls_contain(place: Place) -> None:
    *_, widest = offered(place, place.command("make"), full_walls=True)
    assert (widest.label, widest.grant, widest.rules) == (f"{ANY_WALLED}, this session", ANY_WALLED, ())
    assert not any(choice.grant for choice in offered(place, place.command("make")))


def test_a_written_file(place: Place) -> None:
    facts = call(effect("write", "/workspace/docs/a.b.md", zone_verdict=Verdict.ASK), project="/srv/app")
    found = offered(place, facts)
    assert described(found) == [
        ["path /workspace/docs/a.b.md (write)"],
        ["path /workspace/docs/*.md (write)"],
        ["path /workspace/docs/** (write)"],
    ]
    assert [choice.lifetimes for choice in found] == [("session", "always")] * 3


def test_a_file_without_extension_and_one_with_glob_characters(place: Place) -> None:
    plain = call(effect("delete", "/workspace/Makefile", zone_verdict=Verdict.ASK))
    assert described(offered(place, plain)) == [
        ["path /workspace/Makefile (delete)"],
        ["path /workspace/** (delete)"],
    ]
    odd = call(effect("write", "/workspace/[id]/*.ts", zone_verdict=Verdict.ASK))
    [exact, *_] = offered(place, odd)
    book = place.book()
    for rule in exact.rules_for("session"):
        book.add_session_rule(rule)
    assert place.lifted(book, odd) == "runs"
    other = call(effect("write", "/workspace/i/x.ts", zone_verdict=Verdict.ASK))
    assert place.lifted(book, other) == "asks"


def test_a40_a_patch_is_offered_its_files(place: Place) -> None:
    def patch(*names: str) -> CallFacts:
        return call(*(effect("write", f"/workspace/{name}", zone_verdict=Verdict.ASK) for name in names))

    exact, files = offered(place, patch("a", "b"))
    assert exact.keeps is RememberKind.FINGERPRINT
    assert described((files,)) == [["path /workspace/a (write)", "path /workspace/b (write)"]]
    book = place.book()
    for rule in files.rules_for("session"):
        book.add_session_rule(rule)
    assert place.lifted(book, patch("a")) == "runs"
    assert place.lifted(book, patch("a", "c")) == "asks"


def test_mcp_custom_tools_and_workers(place: Place) -> None:
    mcp = McpName(server="git*hub", tool="get", pinned=True)
    exact, tool = offered(place, call(tool="x", source=SourceKind.MCP, mcp=mcp, says=False))
    assert exact.keeps is RememberKind.FINGERPRINT and described((tool,)) == [["mcp git[*]hub/get"]]
    exact, tool = offered(place, call(tool="mine", source=SourceKind.CUSTOM, says=False))
    assert exact.keeps is RememberKind.FINGERPRINT and described((tool,)) == [["tool mine"]]
    exact, tool = offered(place, call(effect("spawn", "coder"), tool="coder"))
    assert described((tool,)) == [["tool coder"]]


def test_an_unpinned_mcp_tool_is_offered_no_rule_without_effect(place: Place) -> None:
    mcp = McpName(server="g", tool="get", pinned=False)
    [only] = offered(place, call(tool="x", source=SourceKind.MCP, mcp=mcp, says=False))
    assert only.keeps is RememberKind.FINGERPRINT


def test_hosts(place: Place) -> None:
    host, domain = offered(place, call(effect("net", "api.example.com:8443"), project="/srv/app"))
    assert described((host, domain)) == [["host api.example.com (port 8443)"], ["host *.example.com (port 8443)"]]
    assert host.lifetimes == ("session", "always") and domain.lifetimes == ("session",)
    for target in ("example.com:443", "10.0.0.1:443"):
        found = offered(place, call(effect("net", target)))
        assert [choice.id for choice in found] == ["exact", "host"]
    for known in ([effect("net", "api.example.com:443")], []):
        unknown = offered(place, call(*known, effect("net", "somewhere")))
        assert [choice.id for choice in unknown] == ["exact"], "a rule about one host would not let the call through"


def test_what_is_kept_is_scoped_to_worker_and_project(place: Place) -> None:
    facts = place.command("git log", worker="main/coder", project="/srv/app")
    exact, prefix = offered(place, facts)
    assert exact.rules_for("session") == (), "the call itself is kept, not a rule"
    [session] = prefix.rules_for("session")
    [always] = exact.rules_for("always")
    assert (session.origin, session.scope.worker, session.scope.project) == (RuleOrigin.SESSION, "main/coder", "")
    assert (always.origin, always.scope.worker, always.scope.project) == (
        RuleOrigin.REMEMBERED,
        "main/coder",
        "/srv/app",
    )
    assert exact.file == "~/.forge/remembered.yaml"


def test_without_a_project_nothing_is_kept_for_good(place: Place) -> None:
    assert {choice.lifetimes for choice in offered(place, place.command("git log"))} == {("session",)}


def test_marks_that_no_rule_lifts_leave_only_the_exact_call(place: Place) -> None:
    protected = effect("write", "/workspace/.git/config", zone_verdict=Verdict.ASK, marks=(Mark.PROTECTED_PATH,))
    facts = call(protected)
    [only] = choices(
        facts, bases_of(facts), critical=False, explicit_ask=False, grant="", would_lift=lambda rules: False
    )
    assert only.keeps is RememberKind.FINGERPRINT


@table("args", [{"workdir": "src"}, {"tty": True}, {"login": True}, {"shell": "zsh"}, {"network": ["a.test:443"]}])
def test_an_exact_rule_is_not_offered_where_the_words_are_not_all(place: Place, args: dict[str, Any]) -> None:
    facts = place.command("make test", project="/srv/app")
    [exact, *_] = offered(place, facts)
    assert exact.lifetimes == ("session", "always")
    facts.args.update(args)
    [exact, *_] = offered(place, facts)
    assert (exact.id, exact.lifetimes, exact.rules) == ("exact", ("session",), ())


@table(
    ("text", "expected"),
    [
        ("pytest -q tests/a.py", ["exact:session", "prefix1:session", "prefix1:always", "grant:session"]),
        ("python3 -c x", ["exact:session", "exact:always", "grant:session"]),
        ("make > f", ["exact:session"]),
    ],
)
def test_at_most_four_offers_and_every_choice_once(place: Place, text: str, expected: list[str]) -> None:
    found = offered(place, place.command(text, project="/srv/app"), full_walls=True)
    assert [offer.id for offer in offers_from(found)] == expected


def test_of_three_files_to_keep_the_narrowest_can_be_kept_for_good(place: Place) -> None:
    facts = call(effect("write", "/workspace/docs/a.md", zone_verdict=Verdict.ASK), project="/srv/app")
    offers = [offer.id for offer in offers_from(offered(place, facts))]
    assert offers == ["file:session", "file:always", "extension:session", "directory:session"]


def test_a_patch_of_many_files_is_kept_exactly_and_offered_at_once(place: Place) -> None:
    facts = call(
        *(effect("write", f"/workspace/f{n}", zone_verdict=Verdict.ASK) for n in range(200)), project="/srv/app"
    )
    tried: list[int] = []
    found = choices(
        facts,
        bases_of(facts),
        critical=False,
        explicit_ask=False,
        grant="",
        would_lift=lambda rules: tried.append(len(rules)) or True,
    )
    assert [choice.keeps for choice in found] == [RememberKind.FINGERPRINT]
    assert len(tried) < 20, "each try judges the whole call again"
