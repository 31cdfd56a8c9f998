"""forge.yaml and config.yaml: strict keys, precedence, and what an untrusted program may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.config.program import Program, find_root, load_program
from golem_forge.config.run_block import ApprovalMode, choose_mode, is_stricter_mode
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome, forge_home


def load(root: Path, home: ForgeHome, *, trusted: bool = True) -> Program:
    return load_program(root, home, trusted=lambda _: trusted)


def problems(root: Path, home: ForgeHome) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(root, home)
    return list(caught.value.problems)


def test_the_root_is_the_nearest_ancestor_with_a_forge_yaml(root: Path, home: ForgeHome) -> None:
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    assert find_root(deep) is None
    (root / "forge.yaml").write_text("")
    assert find_root(deep) == root
    (root / "a" / "forge.yaml").write_text("")
    assert find_root(deep) == root / "a"
    assert load(deep, home).root == root / "a"


def test_a_directory_without_a_program_is_its_own_workspace(root: Path, home: ForgeHome) -> None:
    program = load(root, home)
    assert (program.root, program.file, program.notice) == (root, None, "")
    [zone] = program.zones
    assert (zone.name, zone.path, zone.mode, zone.write, zone.delete) == ("workspace", root, "rw", None, None)


def test_every_value_has_its_origin(root: Path, home: ForgeHome) -> None:
    (root / "forge.yaml").write_text(
        "sandbox:\n"
        "  root: ..\n"
        "  zones:\n"
        "    workspace: {path: app, approval: {write: preApproved, delete: blocked}}\n"
        "    docs: {path: docs, mode: ro}\n"
        "  unprotect: [.vscode]\n"
        "approval:\n"
        "  mode: strict\n"
        "  default: ask\n"
        "  timeout: 30\n"
        "  tools:\n"
        "    x: blocked\n"
    )
    program = load(root, home)
    workspace, docs = program.zones
    assert (workspace.path, workspace.write, workspace.delete) == (root, Verdict.PRE_APPROVED, Verdict.BLOCKED)
    assert (workspace.origin, docs.origin) == ("forge.yaml:4", "forge.yaml:5")
    assert (docs.path, docs.mode, docs.write) == (root.parent / "docs", "ro", None)
    assert program.unprotect == (".vscode",)
    assert program.approval.default == Setting(Verdict.ASK, "forge.yaml:9")
    assert program.approval.timeout == Setting(30.0, "forge.yaml:10")
    assert program.approval.tools == {"x": Setting(Verdict.BLOCKED, "forge.yaml:12")}
    assert program.mode() == Setting(ApprovalMode.STRICT, "forge.yaml:8")
    assert program.mode(ApprovalMode.AUTO_DENY) == Setting(ApprovalMode.AUTO_DENY, "--approval")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sandox: {}\n", "forge.yaml:1: sandox: unknown key 'sandox'; did you mean 'sandbox'?"),
        ("approval:\n  timout: 3\n", "forge.yaml:2: approval.timout: unknown key 'timout'; did you mean 'timeout'?"),
        (
            "sandbox:\n  zones:\n    a: {path: ., mod: ro}\n",
            "forge.yaml:3: sandbox.zones.a.mod: unknown key 'mod'; did you mean 'mode'?",
        ),
        (
            "zzz: 1\n",
            "forge.yaml:1: zzz: unknown key 'zzz'; known: approval, budget, delegation, entry, ",
        ),
        (
            "approval: {mode: interactiv}\n",
            "approval.mode: expected one of interactive, strict, contained, plan, approve_all, auto_deny",
        ),
        ("approval: {default: preapproved}\n", "('preApproved'?), got 'preapproved'"),
        ("approval: {timeout: 0}\n", "approval.timeout: expected a number above 0, got 0"),
        ("approval: {timeout: true}\n", "approval.timeout: expected a number above 0, got true"),
        ("approval: {timeout: 3153600001}\n", "approval.timeout: expected at most 3153600000, got 3153600001"),
        ("approval: {tools: [a]}\n", "approval.tools: expected a mapping, got a list"),
        ("approval: yes\n", "approval: expected a mapping, got 'yes'"),
        ("sandbox: {zones: {a: {mode: rw}}}\n", "sandbox.zones.a: 'path' is missing"),
        ("sandbox: {unprotect: .git}\n", "sandbox.unprotect: expected a list, got '.git'"),
        ("sandbox: {root: x}\n", "sandbox.root: has no effect without `zones`"),
    ],
)
def test_strict_errors_name_file_line_key_and_nearest(root: Path, home: ForgeHome, text: str, expected: str) -> None:
    (root / "forge.yaml").write_text(text)
    [found] = problems(root, home)
    assert found.startswith("forge.yaml:")
    assert expected in found


def test_all_problems_of_both_files_are_listed(root: Path, home: ForgeHome) -> None:
    home.ensure()
    home.config.write_text("aproval: {}\n")
    (root / "forge.yaml").write_text("approval:\n  mode: x\n  default: y\n")
    found = problems(root, home)
    assert [line.rpartition("/")[2].split(": ")[0] for line in found] == [
        "config.yaml:1",
        "forge.yaml:2",
        "forge.yaml:3",
    ]
    assert str(home.path) not in "".join(found)


def test_the_persons_config_is_the_default_below_forge_yaml(root: Path, home: ForgeHome) -> None:
    home.ensure()
    home.config.write_text("approval:\n  default: preApproved\n  timeout: 9\n  tools: {a: blocked, b: ask, c: ask}\n")
    (root / "forge.yaml").write_text("approval:\n  default: ask\n  tools: {a: preApproved, b: preApproved}\n")
    approval = load(root, home).approval
    assert approval.default is not None and approval.default.value is Verdict.ASK
    assert approval.timeout is not None and approval.timeout.value == 9.0
    assert {name: said.value.value for name, said in approval.tools.items()} == {
        "a": "blocked",  # blocked anywhere blocks
        "b": "preApproved",
        "c": "ask",
    }


UNTRUSTED = """\
sandbox:
  zones:
    workspace: {path: ., approval: {write: preApproved, delete: ask}}
    outside: {path: .., mode: ro}
    sneaky: {path: link}
  unprotect: [.vscode]
approval:
  mode: approve_all
  default: preApproved
  tools: {a: preApproved, b: blocked, c: ask}
"""


def test_an_untrusted_program_can_only_make_things_stricter(root: Path, home: ForgeHome) -> None:
    (root / "forge.yaml").write_text(UNTRUSTED)
    (root / "link").symlink_to("/usr")
    (root / ".forge").mkdir()
    (root / ".forge" / "rules.yaml").write_text("rules: []\n")
    program = load(root, home, trusted=False)
    [workspace] = program.zones
    assert (workspace.name, workspace.write, workspace.delete) == ("workspace", Verdict.ASK, Verdict.ASK)
    assert program.unprotect == ()
    assert program.mode() == Setting(ApprovalMode.INTERACTIVE, "default")
    assert program.approval.default is not None and program.approval.default.value is Verdict.ASK
    assert {name: said.value.value for name, said in program.approval.tools.items()} == {
        "a": "ask",
        "b": "blocked",
        "c": "ask",
    }
    assert "`forge trust`" in program.notice
    for part in ("zone 'outside'", "zone 'sneaky'", "unprotect", "approve_all", "approval.default", "tools.a"):
        assert part in program.notice
    assert ".forge/rules.yaml" in program.notice
    assert "tools.b" not in program.notice and "tools.c" not in program.notice
    assert str(root) not in program.notice

    trusted = load(root, home)
    assert trusted.notice == "" and trusted.unused == ()
    assert [zone.name for zone in trusted.zones] == ["workspace", "outside", "sneaky"]
    assert trusted.mode().value is ApprovalMode.APPROVE_ALL


def setting(mode: str | None) -> Setting[ApprovalMode] | None:
    return Setting(ApprovalMode(mode), "f:1") if mode else None


@pytest.mark.parametrize(
    ("flag", "user", "project", "trusted", "expected"),
    [
        ("approve_all", "strict", "auto_deny", True, "approve_all"),
        (None, "approve_all", "auto_deny", True, "approve_all"),
        (None, None, "approve_all", True, "approve_all"),
        (None, None, "approve_all", False, "interactive"),
        (None, None, "interactive", False, "interactive"),
        (None, None, "strict", False, "strict"),
        (None, None, "auto_deny", False, "auto_deny"),
        (None, "interactive", "auto_deny", False, "interactive"),
        (None, None, None, True, "interactive"),
    ],
)
def test_mode_precedence(flag: str | None, user: str | None, project: str | None, trusted: bool, expected: str) -> None:
    chosen = choose_mode(ApprovalMode(flag) if flag else None, setting(user), setting(project), project_trusted=trusted)
    assert chosen.value == expected


def test_strictness_of_modes() -> None:
    order = ["approve_all", "interactive", "strict", "auto_deny"]
    for low, one in enumerate(order):
        for high, other in enumerate(order):
            assert is_stricter_mode(ApprovalMode(other), ApprovalMode(one)) is (high > low)


def test_forge_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert forge_home({}).path == tmp_path / ".forge"
    assert forge_home({"FORGE_HOME": ""}).path == tmp_path / ".forge"
    assert forge_home({"FORGE_HOME": "~/f"}).path == tmp_path / "f"
    home = forge_home({})
    assert home.shown(home.rules) == "~/.forge/rules.yaml"
    elsewhere = forge_home({"FORGE_HOME": "/srv/forge"})
    assert elsewhere.shown(elsewhere.rules) == "$FORGE_HOME/rules.yaml"
    made = home.ensure("trust", "x")
    assert made == tmp_path / ".forge/trust/x"
    assert [directory.stat().st_mode & 0o777 for directory in (made, made.parent, home.path)] == [0o700] * 3
