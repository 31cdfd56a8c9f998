"""The approval mode `contained`: which dangers stay inside, what needs the outside, and what the mode makes of a call
that asks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge import Tool, open_session
from golem_forge.config.run_block import ApprovalMode, choose_mode, is_stricter_mode
from golem_forge.config.validation import Setting
from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import AnsweredBy, Decision, Risk, Status, Verdict
from golem_forge.core.effects import Effect, Mark, Verb, Walled
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.policy.containment import OUTSIDE_NEEDS, outside_needs
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.risk import ANY_WALLED, floors_of, risk_of, stays_inside
from golem_forge.policy.shell.dangers import BUILTIN_IDS, DANGER_IDS, DANGER_SIDES, Side
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool

INSIDE = {"rm_force", "delete_many", "perm_recursive", "git_rewrite", "env_hijack", "depth", "pipe_to_shell"}
OUTSIDE = {"privilege", "power", "persistence", "secret_read", "upload", "self_invoke"}


def test_every_danger_has_exactly_one_side() -> None:
    assert set(DANGER_SIDES) == set(DANGER_IDS) and len(set(DANGER_IDS)) == len(DANGER_IDS)
    assert not set(DANGER_SIDES) & set(BUILTIN_IDS)
    assert {name for name, side in DANGER_SIDES.items() if side is Side.INSIDE} == INSIDE
    assert {name for name, side in DANGER_SIDES.items() if side is Side.OUTSIDE} == OUTSIDE


@table("mark", [mark for mark in Mark if mark not in (Mark.OPAQUE, Mark.DANGER)])
def test_no_other_floor_stays_inside(mark: Mark) -> None:
    assert not stays_inside(mark.value)
    assert stays_inside("opaque") and stays_inside("danger:rm_force") and not stays_inside("danger:upload")


@table(
    ("text", "words"),
    [
        ("git push", "git push"),
        ("git -C lib push --force origin main", "git push"),
        ("git pull", "git pull"),
        ("git push origin ./main", "git push"),
        ("curl http://localhost:3000 https://example.com", "curl"),
        ("curl http://localhost.example.com", "curl"),
        ("curl http://localhost:3000@example.com/", "curl"),
        ("git fetch --all", "git fetch"),
        ("git clone https://example.com/x", "git clone"),
        ("git clone git@example.com:x", "git clone"),
        ("git remote update", "git remote update"),
        ("git submodule update --init", "git submodule update"),
        ("pip install requests", "pip install"),
        ("pip3.11 install requests", "pip install"),
        ("python3 -m pip install -r requirements.txt", "pip install"),
        ("uv sync", "uv sync"),
        ("npm ci", "npm ci"),
        ("pnpm add x", "pnpm add"),
        ("yarn", "yarn"),
        ("cargo install x", "cargo install"),
        ("go mod tidy", "go mod tidy"),
        ("go install example.com/x@latest", "go install"),
        ("gem install x", "gem install"),
        ("bundle install", "bundle install"),
        ("curl -s https://example.com", "curl"),
        ("wget x", "wget"),
        ("ssh host ls", "ssh"),
        ("scp a host:b", "scp"),
        ("rsync -a src host:dst", "rsync"),
        ("docker ps", "docker"),
        ("podman run x", "podman"),
        ("gh pr list", "gh"),
        ("apt install x", "apt"),
        ("env A=1 timeout 5 git push", "git push"),
        ("make test && git push", "git push"),
        ("git log | head; curl x | jq .", "curl"),
        ("for p in a b; do pip install $p; done", "pip install"),
        ('echo "$(curl x)" > f', "curl"),
        ("bash -c 'npm install x'", "npm install"),
        ("(cd web && npm install)", "npm install"),
    ],
)
def test_what_cannot_work_inside(text: str, words: str) -> None:
    assert [named for named, _ in outside_needs(find_commands(text))] == [words]


@table(
    "text",
    [
        "git status",
        "git commit -m 'git push'",
        "git remote -v",
        "git submodule status",
        "git clone ./here there",
        "pip list",
        "npm test",
        "npm run build",
        "yarn test",
        "uv run pytest",
        "cargo build",
        "go test ./...",
        "go install ./cmd/x",
        "rsync -a src/ dst/",
        "echo pip install x",
        "cat > README.md <<'E'\ngit push\npip install x\nE",
        "curl --version",
        "curl -s -o out.json http://localhost:3000/api",
        "wget -q 127.0.0.1:8000/x",
        "git push ../up.git HEAD:main",
        "git fetch file:///workspace/up.git",
        "docker --version",
        "make",
        "ls docker",
    ],
)
def test_what_works_without_anybody(text: str) -> None:
    assert [*outside_needs(find_commands(text))] == []


def test_every_row_of_the_table_says_what_it_needs() -> None:
    assert all(row.programs and row.needs for row in OUTSIDE_NEEDS)


def test_its_place_among_the_modes() -> None:
    loosest_first = ["approve_all", "contained", "interactive", "strict", "auto_deny"]
    modes = [ApprovalMode(name) for name in loosest_first]
    assert all(is_stricter_mode(after, before) for before, after in pairwise(modes))


def test_a_program_that_is_not_trusted_cannot_choose_it() -> None:
    wish = Setting(ApprovalMode.CONTAINED, "forge.yaml:2")
    assert choose_mode(None, None, wish, project_trusted=False) == Setting(ApprovalMode.INTERACTIVE, "default")
    assert choose_mode(None, None, wish, project_trusted=True) == wish
    assert choose_mode(ApprovalMode.CONTAINED, None, None, project_trusted=False).value is ApprovalMode.CONTAINED


async def test_the_controller_needs_nobody_and_denies_what_is_not_contained() -> None:
    controller = ApprovalController("contained")
    inside = Decision(Verdict.ASK, answered_by=AnsweredBy.CONTAINED)
    answer = await controller.approve(inside, "t", lambda: pytest.fail("nobody is asked"))
    assert (answer.approved, answer.by) == (True, AnsweredBy.CONTAINED)
    outside = Decision(Verdict.ASK, not_contained=("it reaches a host",))
    answer = await controller.approve(outside, "t", lambda: pytest.fail("nobody is asked"))
    assert not answer.approved and answer.message == "Nobody can be asked, and t asks because it reaches a host"


def test_a_decision_names_reasons_only_where_there_are_some() -> None:
    assert "notContained" not in Decision(Verdict.ASK).to_json()
    assert Decision(Verdict.ASK, not_contained=("a", "b")).to_json()["notContained"] == ["a", "b"]


def test_a_text_that_nobody_can_read_is_no_floor_where_it_is_contained_or_granted() -> None:
    text = Effect(verb=Verb.EXEC, target="ls *", marks=(Mark.OPAQUE,), walled=Walled.OFFERED)
    assert [id_ for id_, _ in floors_of(text)] == ["opaque"]
    assert [*floors_of(text, {ANY_WALLED})] == []
    inside = Effect(verb=Verb.EXEC, target="ls *", marks=(Mark.OPAQUE,), leaves=())
    assert [*floors_of(inside)] == []
    leaving = Effect(verb=Verb.EXEC, target="curl *", marks=(Mark.OPAQUE,), leaves=("`curl` needs a host",))
    assert [id_ for id_, _ in floors_of(leaving)] == ["opaque"]
    typed = Effect(verb=Verb.EXEC, target="\x1b", marks=(Mark.OPAQUE,), grant="input to session 1")
    assert [id_ for id_, _ in floors_of(typed, {"input to session 1"})] == ["opaque"]
    assert risk_of(leaving) is Risk.HIGH


def planned(*effects: Effect | None, **options: Any) -> Tool:
    def plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
        return Plan(run=lambda: "ran", effects=None if None in effects else effects)  # type: ignore[arg-type]

    return native_tool("act", "Acts.", input_schema={"type": "object"}, planner=plan, **options)


INSIDE_WRITE = Effect(verb=Verb.WRITE, target="/workspace/a", zone_verdict=Verdict.ASK, leaves=())


@pytest.fixture
def act(make_path: Callable[..., Any], asked: Any) -> Callable[..., Any]:
    async def made(tool: Tool, **options: Any) -> tuple[Any, list[Any]]:
        ask = asked({"approved": False})
        path = make_path(tool, ask=ask, mode="contained", **options)
        return await path.call(ToolCall(tool.name, {})), ask

    return made


async def test_what_stays_inside_runs_and_nothing_is_remembered(act: Callable[..., Any]) -> None:
    outcome, asked = await act(planned(INSIDE_WRITE))
    decision = outcome.decision
    assert (outcome.status, outcome.text, list(asked)) == (Status.SUCCESS, "ran", [])
    assert (decision.verdict, decision.answered_by) == (Verdict.ASK, AnsweredBy.CONTAINED)
    assert (decision.remembered, decision.cached, decision.not_contained) == ("", False, ())


@table(
    ("effect", "because"),
    [
        (Effect(verb=Verb.WRITE, target="/workspace/a", zone_verdict=Verdict.ASK), "does not cover write /workspace/a"),
        (Effect(verb=Verb.NET, target="a.test:443"), "it reaches a.test:443"),
        (Effect(verb=Verb.EXEC, target="x", leaves=("`x` needs a host",)), "`x` needs a host"),
        (
            Effect(verb=Verb.WRITE, target="/w/.env", zone_verdict=Verdict.ASK, leaves=(), marks=(Mark.SECRET_PATH,)),
            "/w/.env looks like a secret",
        ),
        (
            Effect(verb=Verb.EXEC, target="sudo x", leaves=(), marks=(Mark.DANGER,), dangers=("privilege",)),
            "(privilege)",
        ),
    ],
)
async def test_what_leaves_asks_and_says_why(act: Callable[..., Any], effect: Effect, because: str) -> None:
    outcome, asked = await act(planned(INSIDE_WRITE, effect))
    assert outcome.status is Status.APPROVAL_DENIED
    assert because in " ".join(outcome.decision.not_contained)
    (request,) = asked
    assert request.why.startswith("asks because ") and because in request.why


async def test_what_was_written_by_hand_beats_the_mode(act: Callable[..., Any]) -> None:
    outcome, asked = await act(planned(INSIDE_WRITE, needs_approval=True))
    assert (outcome.decision.not_contained, len(asked)) == (("the tool says ask",), 1)
    block = ApprovalBlock(tools={"act": Setting(Verdict.ASK, "forge.yaml:3")})
    outcome, asked = await act(planned(INSIDE_WRITE), blocks=ApprovalBlocks(program=block))
    assert len(asked) == 1 and "forge.yaml:3" in asked[0].why
    forge_home().ensure()
    forge_home().rules.write_text("version: 1\nrules:\n  - {path: /workspace/a, access: [write], verdict: ask}\n")
    outcome, asked = await act(planned(INSIDE_WRITE))
    assert len(asked) == 1 and "rules.yaml" in asked[0].why


async def test_what_is_blocked_stays_blocked(act: Callable[..., Any]) -> None:
    closed = Effect(verb=Verb.WRITE, target="/workspace/a", zone_verdict=Verdict.BLOCKED, leaves=())
    outcome, asked = await act(planned(closed))
    assert (outcome.status, list(asked)) == (Status.POLICY_DENIED, [])


@table("effects", [None, (), (Effect(verb=Verb.READ, target="/x"),)])
async def test_a_tool_that_only_claims_what_it_touches_asks(act: Callable[..., Any], effects: Any) -> None:
    outcome, asked = await act(Tool("send", "Sends.", execute=lambda: "sent", effects=effects))
    assert (outcome.status, len(asked)) == (Status.APPROVAL_DENIED, 1)


async def test_no_rule_and_no_zone_lets_a_secret_name_be_changed_unasked(tmp_path: Path) -> None:
    home, root = ForgeHome(tmp_path / "home"), tmp_path / "project"
    root.mkdir()
    home.ensure()
    names = (".env", "id_rsa", "server.pem")
    for name in names:
        (root / name).write_text("kept")
    zone = "workspace: {path: ., approval: {write: preApproved, delete: preApproved}}"
    (home.path / "config.yaml").write_text(f"sandbox: {{zones: {{{zone}}}}}\n".replace("path: .", f"path: {root}"))
    rule = '{path: "/workspace/**", access: [write, delete], verdict: preApproved}'
    (home.path / "rules.yaml").write_text(f"version: 1\nrules:\n- {rule}\n")
    async with open_session(root, approval="auto_deny", home=home) as session:
        for name in names:
            for tool, args in (("write_file", {"path": name, "content": "x"}), ("delete_file", {"path": name})):
                outcome = await session.call(tool, args)
                assert outcome.status is Status.APPROVAL_DENIED
                assert outcome.decision is not None and outcome.decision.decided_by is not None
                assert outcome.decision.decided_by.id == "secret_path"
        assert (await session.call("write_file", {"path": "a.txt", "content": "x"})).status is Status.SUCCESS
    assert [(root / name).read_text() for name in names] == ["kept"] * 3
