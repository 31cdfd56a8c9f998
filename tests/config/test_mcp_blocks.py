"""`mcp` and `tools` of forge.yaml and config.yaml, over `.mcp.json`: mcp.md §1, workers.md §2, cases 1 and 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.mcp_spec import AuthKind, DeferralSettings, ServerAuth, ServerSpec, ServerTrust
from golem_forge.config.program import Program, load_program
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome


def load(root: Path, home: ForgeHome, *, trusted: bool = True, overrides: tuple[str, ...] = ()) -> Program:
    return load_program(root, home, trusted=lambda _: trusted, overrides=overrides)


def servers(root: Path, home: ForgeHome, text: str, **how: Any) -> dict[str, ServerSpec]:
    (root / "forge.yaml").write_text(text)
    return dict(load(root, home, **how).mcp.servers)


def problems(root: Path, home: ForgeHome, text: str | None = None) -> list[str]:
    if text is not None:
        (root / "forge.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(root, home)
    return list(caught.value.problems)


def mcp_json(root: Path, **entries: Any) -> None:
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))


def test_every_key_of_a_server(root: Path, home: ForgeHome) -> None:
    found = servers(
        root,
        home,
        """\
sandbox: {zones: {workspace: {path: .}, docs: {path: docs, mode: ro}}}
mcp:
  servers:
    git:
      command: uvx
      args: [mcp-server-git, --repository, "${zone:workspace}", ""]
      env: {A: "${B:-c}"}
      pass_env: [TOKEN, TOKEN]
      cwd: /workspace/sub
      zones: {workspace: rw, docs: ro}
      network: [Example.COM., "api.test:8443", "[2001:DB8::1]:443", example.com, "group:node"]
      enabled: false
      required: true
      trust: trusted
      tools: {allow: [git_*], deny: [git_push]}
      always_load: [git_status]
      approval: {default: ask, tools: {git_status: preApproved}}
      sampling: blocked
      connect_timeout: 1
      idle_timeout: 2.5
      total_timeout: 3
      close_after: 4
      protocol: legacy
    docs: {url: "https://docs.example/mcp?x=1", headers: {X-Key: "${KEY}"}, auth: {bearer_env: DOCS_TOKEN}}
    near: {url: "http://localhost:8000/mcp", auth: oauth, network_: 1}
""".replace(", network_: 1", ""),
    )
    git, docs, near = found["git"], found["docs"], found["near"]
    assert list(found) == ["docs", "git", "near"]
    assert (git.name, git.scope, git.origin) == ("git", str(root), "forge.yaml:4")
    assert (git.command, git.args) == ("uvx", ("mcp-server-git", "--repository", "${zone:workspace}", ""))
    assert (dict(git.env), git.pass_env, git.cwd) == ({"A": "${B:-c}"}, ("TOKEN",), "/workspace/sub")
    assert dict(git.zones) == {"workspace": "rw", "docs": "ro"}
    assert git.network == ("example.com", "api.test:8443", "[2001:db8::1]:443", "group:node")
    assert (git.enabled, git.required, git.trust) == (False, True, ServerTrust.TRUSTED)
    assert (git.allow, git.deny, git.always_load) == (("git_*",), ("git_push",), ("git_status",))
    assert git.approval_default == Setting(Verdict.ASK, "forge.yaml:17")
    assert git.approval_tools == {"git_status": Setting(Verdict.PRE_APPROVED, "forge.yaml:17")}
    assert (git.sampling, git.protocol, git.problem) == (Verdict.BLOCKED, "legacy", "")
    assert (git.connect_timeout, git.idle_timeout, git.total_timeout, git.close_after) == (1, 2.5, 3, 4)
    assert (docs.url, dict(docs.headers)) == ("https://docs.example/mcp?x=1", {"X-Key": "${KEY}"})
    assert docs.auth == ServerAuth(AuthKind.BEARER, "DOCS_TOKEN") and near.auth == ServerAuth(AuthKind.OAUTH)


def test_the_defaults(root: Path, home: ForgeHome) -> None:
    found = servers(root, home, "mcp: {servers: {a: {command: x}}}\n")
    assert found == {"a": ServerSpec(name="a", scope=str(root), origin="forge.yaml:1", command="x")}
    assert load(root, home).mcp.deferral == DeferralSettings()
    for empty in ("mcp:\n", "mcp: {}\n", "mcp: {servers: {}}\n", "tools:\n"):
        assert servers(root, home, empty) == {}


def test_when_tools_are_too_many_the_program_over_the_person(root: Path, home: ForgeHome) -> None:
    home.config.write_text("tools: {defer_above: 5, always_load: [a]}\n")
    (root / "forge.yaml").write_text("tools: {defer_above: 7, defer_tokens: 100}\n")
    assert load(root, home).mcp.deferral == DeferralSettings(above=7, tokens=100, always_load=("a",))


STDIO = "mcp:\n  servers:\n    a:\n      command: x\n      "
HTTP = "mcp:\n  servers:\n    a:\n      url: https://h.test\n      "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STDIO + "comand: y", "5: mcp.servers.a.comand: unknown key 'comand'; did you mean 'command'?"),
        (STDIO + "headers: {A: b}", "5: mcp.servers.a.headers: has no effect for a server with `command`"),
        (STDIO + "auth: oauth", "5: mcp.servers.a.auth: has no effect for a server with `command`"),
        (STDIO + "url: https://h.test", "5: mcp.servers.a.url: cannot be used together with `command`"),
        (HTTP + "args: [x]", "5: mcp.servers.a.args: has no effect for a server with `url`"),
        (HTTP + "zones: {workspace: ro}", "5: mcp.servers.a.zones: has no effect for a server with `url`"),
        (HTTP + "network: false", "5: mcp.servers.a.network: has no effect for a server with `url`"),
        (
            "mcp:\n  servers:\n    a: {trust: trusted}",
            "3: mcp.servers.a: needs `command` (a program to start) or `url`",
        ),
        ("mcp:\n  servers:\n    a: {}", "3: mcp.servers.a: needs `command`"),
        ("mcp:\n  servers:\n    a: {command: 5}", "3: mcp.servers.a.command: expected the name or path of a program"),
        ("mcp:\n  servers:\n    a__b: {command: x}", "3: mcp.servers.a__b: not a name of a server"),
        ("mcp:\n  servers:\n    a.b: {command: x}", "3: mcp.servers.a.b: not a name of a server"),
        (f"mcp:\n  servers:\n    {'a' * 33}: {{command: x}}", "not a name of a server"),
        ("mcp: {server: {}}", "1: mcp.server: unknown key 'server'; did you mean 'servers'?"),
        (STDIO + "args: [--port, 80]", "5: mcp.servers.a.args[1]: expected a text (put numbers"),
        (STDIO + "env: {PORT: 80}", "5: mcp.servers.a.env.PORT: expected a text (put numbers"),
        (
            STDIO + "env:\n        A: b\n        LD_PRELOAD: x",
            "7: mcp.servers.a.env.LD_PRELOAD: 'LD_PRELOAD' cannot be",
        ),
        (STDIO + "env: {FORGE_HOME: x}", "'FORGE_HOME' cannot be given to a child"),
        (STDIO + "pass_env: [A, PATH]", "5: mcp.servers.a.pass_env[1]: 'PATH' cannot be given to a child"),
        (STDIO + "pass_env: [A-B]", "is not the name of a variable"),
        (STDIO + "zones: {workspce: ro}", "5: mcp.servers.a.zones.workspce: this program has no zone 'workspce'; did"),
        (
            STDIO + "zones:\n        workspace: ro\n        zzz: ro",
            "7: mcp.servers.a.zones.zzz: this program has no zone",
        ),
        (STDIO + "zones: {workspace: rwx}", "5: mcp.servers.a.zones.workspace: expected one of ro, rw"),
        (STDIO + "cwd: /workspace", "5: mcp.servers.a.cwd: this server was not given a zone 'workspace'"),
        (STDIO + "zones: {workspace: ro}\n      cwd: sub", "6: mcp.servers.a.cwd: expected an address in one of"),
        (STDIO + "zones: {workspace: ro}\n      cwd: /workspace/../etc", "6: mcp.servers.a.cwd: expected an address"),
        (STDIO + "network: maybe", "5: mcp.servers.a.network: expected true, false or a list of hosts"),
        (STDIO + "network: ['*.x.test']", "5: mcp.servers.a.network[0]: '*.x.test': name one host"),
        (STDIO + "network: ['https://x.test']", "without scheme"),
        (STDIO + "network: ['group:perl']", "groups are python, node, rust, go"),
        (STDIO + "network: ['x.test:99999']", "a port is a number from 1 to 65535"),
        (STDIO + "network: ['0x7f.1']", "is not a usable address"),
        (STDIO + "enabled: 1", "5: mcp.servers.a.enabled: expected true or false"),
        (STDIO + "trust: yes", "5: mcp.servers.a.trust: expected one of untrusted, trusted"),
        (STDIO + "tools: {allow: git}", "5: mcp.servers.a.tools.allow: expected a list"),
        (STDIO + "tools: {alow: []}", "unknown key 'alow'; did you mean 'allow'?"),
        (STDIO + "approval: {default: maybe}", "5: mcp.servers.a.approval.default: expected one of preApproved, ask"),
        (STDIO + "approval: {tools: {x: yes}}", "5: mcp.servers.a.approval.tools.x: expected one of"),
        (STDIO + "sampling: no", "5: mcp.servers.a.sampling: expected one of"),
        (STDIO + "idle_timeout: 0", "5: mcp.servers.a.idle_timeout: expected a number above 0"),
        (STDIO + "close_after: -1", "5: mcp.servers.a.close_after: expected a number above 0"),
        (STDIO + "protocol: new", "5: mcp.servers.a.protocol: expected one of auto, legacy"),
        ("mcp: {servers: {a: {url: 'http://h.test/mcp'}}}", "1: mcp.servers.a.url: http is only for this machine"),
        ("mcp: {servers: {a: {url: 'http://127.0.0.1.evil.test'}}}", "http is only for this machine"),
        ("mcp: {servers: {a: {url: 'http://${X}'}}}\nx: 1", "unknown key 'x'"),
        ("mcp: {servers: {a: {url: 'http://evil.test/${X}'}}}", "http is only for this machine"),
        ("mcp: {servers: {a: {url: 'ftp://${X}'}}}", "expected an address like https://host/mcp"),
        ("mcp: {servers: {a: {url: 'https://canary:pw@h.test'}}}", "an address must not contain credentials"),
        ("mcp: {servers: {a: {url: 'http://127.0.0.1\\@evil.test'}}}", "in plain characters"),
        (HTTP + "auth: canary-token", "5: mcp.servers.a.auth: expected none, oauth or {bearer_env: NAME}"),
        (HTTP + "auth: {bearer_env: canary-token}", "expected the name of an environment variable"),
        (HTTP + "auth: {bearer: X}", "5: mcp.servers.a.auth.bearer: unknown key 'bearer'; did you mean 'bearer_env'?"),
        (
            HTTP + "headers: {Authorization: x}\n      auth: oauth",
            "6: mcp.servers.a.auth: cannot be used together with a header",
        ),
        (HTTP + "headers: {Mcp-Session-Id: x}", "'Mcp-Session-Id' is set by Forge"),
        (HTTP + "headers: {A: 5}", "5: mcp.servers.a.headers.A: expected a text of one line"),
        ("tools: {defer_above: 0}", "1: tools.defer_above: expected a whole number above 0"),
        ("tools: {defer_abov: 3}", "unknown key 'defer_abov'; did you mean 'defer_above'?"),
    ],
)
def test_every_problem_has_its_line(root: Path, home: ForgeHome, text: str, said: str) -> None:
    found = problems(root, home, text + "\n")
    assert any(said in each for each in found), found
    assert all(each.startswith("forge.yaml:") for each in found) and "canary" not in "".join(found)


def test_all_problems_are_told_at_once(root: Path, home: ForgeHome) -> None:
    home.config.write_text("mcp: {servers: {b: {trust: trusted}}}\n")
    found = problems(root, home, "entri: x\nmcp: {servers: {a: {}, c: {url: https://h.test, cwd: /x}}}\n")
    assert len(found) == 4
    assert [
        said
        for said in found
        if said.endswith("config.yaml:1: mcp.servers.b: needs `command` (a program to start) or `url`")
    ]


@pytest.mark.parametrize("url", ["http://localhost", "http://127.0.0.1:80/x", "http://[::1]:9/mcp", "http://127.9.9.9"])
def test_http_to_this_machine(root: Path, home: ForgeHome, url: str) -> None:
    assert servers(root, home, f"mcp: {{servers: {{a: {{url: '{url}'}}}}}}\n")["a"].url == url


def test_forge_yaml_overlays_mcp_json_key_by_key(root: Path, home: ForgeHome) -> None:
    mcp_json(
        root,
        git={"command": "uvx", "args": ["a"], "env": {"A": "1", "B": "2"}},
        old={"type": "sse", "url": "https://h.test"},
    )
    found = servers(root, home, "mcp: {servers: {git: {trust: trusted, env: {C: '3'}}, old: {trust: trusted}}}\n")
    git = found["git"]
    assert (git.command, git.args, git.trust) == ("uvx", ("a",), ServerTrust.TRUSTED)
    assert dict(git.env) == {"C": "3"} and git.origin == "forge.yaml:1"
    assert found["old"].problem == "SSE is not supported; use streamable HTTP"
    found = servers(root, home, "mcp: {servers: {old: {url: https://h.test/mcp}}}\n")
    assert (found["old"].problem, found["old"].url) == ("", "https://h.test/mcp")
    [said] = problems(root, home, "mcp: {servers: {git: {url: https://h.test}}}\n")
    assert said == "forge.yaml:1: mcp.servers.git.url: cannot be used together with `command`; keep one of the two"


def test_a_program_is_also_a_directory_with_only_mcp_json(root: Path, home: ForgeHome) -> None:
    home.config.write_text("mcp: {servers: {mine: {command: x}, both: {command: mine}}}\n")
    mcp_json(root, time={"command": "uvx", "autoApprove": ["*"]}, both={"command": "theirs"})
    program = load(root, home)
    assert program.file is None
    assert {name: (spec.scope, spec.command, spec.origin) for name, spec in program.mcp.servers.items()} == {
        "both": (str(root), "theirs", ".mcp.json"),
        "mine": ("", "x", f"{home.shown(home.config)}:1"),
        "time": (str(root), "uvx", ".mcp.json"),
    }
    assert program.mcp.warnings[0].startswith(".mcp.json: mcpServers.time.autoApprove: grants nothing")
    assert program.mcp.servers["time"].approval_default is None


def test_a_broken_mcp_json_stops_nothing_but_what_leans_on_it(root: Path, home: ForgeHome) -> None:
    (root / ".mcp.json").write_text("{")
    assert servers(root, home, "mcp: {servers: {a: {command: x}}}\n").keys() == {"a"}
    assert load(root, home).mcp.warnings[0].startswith(".mcp.json:1:2: not valid JSON")
    found = problems(root, home, "mcp: {servers: {git: {trust: trusted}}}\n")
    assert found[0].startswith("forge.yaml:1: mcp.servers.git: needs `command`")
    assert found[1].startswith(".mcp.json:1:2: not valid JSON")


def test_a_programs_server_replaces_the_persons_of_that_name(root: Path, home: ForgeHome) -> None:
    home.config.write_text("mcp: {servers: {docs: {url: https://mine.test, trust: trusted}}}\n")
    found = servers(root, home, "mcp: {servers: {docs: {url: https://theirs.test}}}\n")
    assert (found["docs"].scope, found["docs"].url, found["docs"].trust) == (
        str(root),
        "https://theirs.test",
        ServerTrust.UNTRUSTED,
    )
    [said] = problems(root, home, "mcp: {servers: {docs: {enabled: false}}}\n")
    assert "mcp.servers.docs: needs `command`" in said


def test_the_command_line_speaks_about_every_server_there_is(root: Path, home: ForgeHome) -> None:
    home.config.write_text("mcp: {servers: {mine: {command: x}}}\n")
    mcp_json(root, theirs={"command": "y"})
    switches = ("mcp.servers.mine.enabled=false", "mcp.servers.theirs.trust=trusted", "tools.defer_above=3")
    for program in (None, "mcp: {servers: {ours: {command: z}}}\n"):
        if program is not None:
            (root / "forge.yaml").write_text(program)
        mcp = load(root, home, trusted=False, overrides=switches).mcp
        mine, theirs = mcp.servers["mine"], mcp.servers["theirs"]
        assert (mine.command, mine.enabled, mine.scope) == ("x", False, "")
        assert (theirs.command, theirs.trust, theirs.scope) == ("y", ServerTrust.TRUSTED, str(root))
        assert mcp.deferral.above == 3
    assert not load(root, home, overrides=("mcp.servers.ours.enabled=false",)).mcp.servers["ours"].enabled
    with pytest.raises(ConfigError, match=r"^--set mcp\.servers\.ours\.url: cannot be used together with `command`"):
        load(root, home, overrides=("mcp.servers.ours.url=https://h.test",))
    with pytest.raises(ConfigError, match=r"^--set mcp\.servers\.ours\.enabld: unknown key"):
        load(root, home, overrides=("mcp.servers.ours.enabld=false",))


def test_a_strangers_program_loosens_nothing(root: Path, home: ForgeHome) -> None:
    home.config.write_text("mcp: {servers: {mine: {command: x, trust: trusted, approval: {default: preApproved}}}}\n")
    text = (
        "mcp:\n  servers:\n    a:\n      command: x\n      trust: trusted\n      sampling: preApproved\n"
        "      approval:\n        default: preApproved\n        tools: {r: preApproved, w: blocked}\n"
    )
    (root / "forge.yaml").write_text(text)
    program = load(root, home, trusted=False)
    a = program.mcp.servers["a"]
    assert (a.trust, a.sampling) == (ServerTrust.UNTRUSTED, Verdict.ASK)
    assert a.approval_default == Setting(Verdict.ASK, "forge.yaml:8")
    assert {name: said.value for name, said in a.approval_tools.items()} == {"r": Verdict.ASK, "w": Verdict.BLOCKED}
    assert program.unused == (
        "forge.yaml:5: mcp.servers.a.trust: trusted",
        "forge.yaml:6: mcp.servers.a.sampling: preApproved counts as ask",
        "forge.yaml:9: mcp.servers.a.approval.tools.r: preApproved counts as ask",
        "forge.yaml:8: mcp.servers.a.approval.default: preApproved counts as ask",
    )
    mine = program.mcp.servers["mine"]
    assert (
        mine.trust is ServerTrust.TRUSTED
        and mine.approval_default
        and mine.approval_default.value is Verdict.PRE_APPROVED
    )
    a = load(root, home).mcp.servers["a"]
    assert (a.trust, a.sampling) == (ServerTrust.TRUSTED, Verdict.PRE_APPROVED)
    assert a.digest == program.mcp.servers["a"].digest  # trust is no part of what a person lets start


def test_zones_are_those_of_the_program(root: Path, home: ForgeHome) -> None:
    home.config.write_text("mcp: {servers: {mine: {command: x, zones: {notes: rw, workspace: rw}}}}\n")
    zones = "sandbox: {zones: {workspace: {path: ., mode: ro}, far: {path: ../far}}}\n"
    (root / "forge.yaml").write_text(zones + "mcp: {servers: {a: {command: x, zones: {far: rw}}}}\n")
    program = load(root, home)
    assert program.mcp.servers["a"].problem == ""
    mine = program.mcp.servers["mine"]
    assert "zones.notes: this program has no zone 'notes'; its zones: far, workspace" in mine.problem
    assert mine.zones["workspace"] == "ro"
    assert "not used while the program is not trusted" in load(root, home, trusted=False).mcp.servers["a"].problem
    [said] = problems(root, home, zones + "mcp: {servers: {a: {command: x, zones: {workspace: rw}}}}\n")
    assert said == "forge.yaml:2: mcp.servers.a.zones.workspace: expected ro: the zone itself is read-only"


@pytest.mark.parametrize(
    ("cwd", "address"),
    [(".", "/workspace"), ("sub/x", "/workspace/sub/x"), ("/workspace/y", "/workspace/y"), (None, "/workspace")],
)
def test_a_directory_in_mcp_json_becomes_an_address(root: Path, home: ForgeHome, cwd: str | None, address: str) -> None:
    mcp_json(root, a={"command": "x", "cwd": str(root) if cwd is None else cwd})
    alone = load(root, home).mcp.servers["a"]
    assert (alone.cwd, dict(alone.zones), alone.problem) == (address, {"workspace": "ro"}, "")
    found = servers(root, home, "mcp: {servers: {a: {zones: {workspace: rw}}}}\n")
    assert (found["a"].cwd, dict(found["a"].zones), found["a"].problem) == (address, {"workspace": "rw"}, "")
    without = servers(root, home, "mcp: {servers: {a: {zones: {}}}}\n")["a"]
    assert "was not given a zone 'workspace'; write `zones: {workspace: ro}`" in without.problem


ZONES = "sandbox: {zones: {workspace: {path: .}, docs: {path: docs}}}\n"


@pytest.mark.parametrize(
    ("written", "said", "zones"),
    [
        ("{root}", "${zone:workspace}", ["workspace"]),
        ("{root}/a b/c.db", "${zone:workspace}/a b/c.db", ["workspace"]),
        ("{root}/docs/x", "${zone:docs}/x", ["docs"]),
        ("--root={root}/docs", "--root=${zone:docs}", ["docs"]),
        ("{link}/x", "${zone:workspace}/x", ["workspace"]),
        ("{root}-evil/x", "{root}-evil/x", []),
        ("{root}/../x", "{root}/../x", []),
        ("/etc/passwd", "/etc/passwd", []),
        ("docs", "docs", []),
        ("/workspace/x", "/workspace/x", []),
        ("say={root}", "say={root}", []),
    ],
)
def test_an_argument_of_mcp_json_that_lies_in_a_zone_names_the_zone_and_gives_it_to_read(
    root: Path, home: ForgeHome, written: str, said: str, zones: list[str]
) -> None:
    (root / "docs").mkdir()
    link = root.parent / "link"
    link.symlink_to(root)
    places = {"root": str(root), "link": str(link)}

    def put(text: str) -> str:
        for name, place in places.items():
            text = text.replace(f"{{{name}}}", place)
        return text

    mcp_json(root, a={"command": "x", "args": ["-y", put(written)]})
    found = servers(root, home, ZONES)["a"]
    assert (found.args, dict(found.zones), found.problem) == (("-y", put(said)), dict.fromkeys(zones, "ro"), "")


def test_what_forge_yaml_says_about_zones_and_arguments_stays(root: Path, home: ForgeHome) -> None:
    mcp_json(root, a={"command": "x", "args": [str(root)]}, b={"command": "x", "args": [str(root)]})
    found = servers(root, home, f"mcp: {{servers: {{a: {{zones: {{}}}}, b: {{args: [{root}]}}}}}}\n")
    assert [(spec.args, dict(spec.zones)) for spec in found.values()] == [((str(root),), {}), ((str(root),), {})]
    wide = servers(root, home, "mcp: {servers: {a: {zones: {workspace: rw}}}}\n")["a"]
    assert (wide.args, dict(wide.zones)) == (("${zone:workspace}",), {"workspace": "rw"})


def test_what_mcp_json_says_and_nobody_knows_is_told_at_the_start(root: Path, home: ForgeHome) -> None:
    mcp_json(root, a={"command": "x", "autoApprove": ["*"]})
    assert "mcpServers.a.autoApprove: grants nothing here" in load(root, home).notice


def test_a_directory_in_mcp_json_outside_every_zone(root: Path, home: ForgeHome) -> None:
    mcp_json(root, a={"command": "x", "cwd": "../elsewhere"}, b={"command": "x", "cwd": "/etc"})
    for spec in load(root, home).mcp.servers.values():
        assert spec.problem.startswith(".mcp.json: cwd: ")


def test_the_digest_is_over_what_is_started(root: Path, home: ForgeHome) -> None:
    digests = [
        servers(root, home, f"mcp: {{servers: {{a: {{command: x{more}}}}}}}\n")["a"].digest
        for more in (
            "",
            ", args: [y]",
            ", env: {A: b}",
            ", network: false",
            ", zones: {workspace: ro}",
            ", pass_env: [Q]",
        )
    ]
    assert len(set(digests)) == len(digests)
    same = servers(root, home, "mcp: {servers: {a: {command: x, trust: trusted, idle_timeout: 9}}}\n")["a"].digest
    assert same == digests[0]


def test_what_is_said_over_an_entry_that_starts_forge_is_about_nothing(root: Path, home: ForgeHome) -> None:
    mcp_json(root, **{"golem-forge": {"command": "forge", "args": ["mcp", "serve", "-p", str(root)]}})
    assert servers(root, home, "mcp: {servers: {golem-forge: {enabled: false}}}\n") == {}
    assert list(servers(root, home, "mcp: {servers: {golem-forge: {command: x}}}\n")) == ["golem-forge"]


GIT = "{command: uvx, args: [git]}"


def test_the_keys_of_other_programs_mean_ours(root: Path, home: ForgeHome) -> None:
    ours = servers(root, home, f"mcp: {{servers: {{git: {GIT}, docs: {{url: 'https://d.test/mcp'}}}}}}\n")
    typed = "{type: stdio, command: uvx, args: [git]}"
    theirs = f"mcp_servers:\n  git: {typed}\n  docs: {{type: streamable-http, url: 'https://d.test/mcp'}}\n"
    found = servers(root, home, theirs)
    assert {name: (spec.command, spec.args, spec.url) for name, spec in found.items()} == {
        name: (spec.command, spec.args, spec.url) for name, spec in ours.items()
    }
    assert {name: spec.digest for name, spec in found.items()} == {name: spec.digest for name, spec in ours.items()}
    assert found["docs"].origin == "forge.yaml:3"
    assert servers(root, home, f"mcp: {{servers: {{git: {GIT}}}}}\nmcp_servers: {{git: {GIT}}}\n").keys() == {"git"}
    assert servers(root, home, "mcp_servers:\n") == {}
    kept = servers(root, home, f"mcp_servers: {{git: {GIT}}}\n", overrides=("mcp.servers.git.required=true",))
    assert kept["git"].required and kept["git"].command == "uvx"
    (home.path / "config.yaml").write_text(f"mcp_servers: {{own: {GIT}}}\n")
    assert servers(root, home, "").keys() == {"own"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"mcp: {{servers: {{git: {GIT}}}}}\nmcp_servers: {{docs: {GIT}}}",
            "forge.yaml:2: mcp_servers: is another spelling of `mcp.servers`, and that says something else "
            "(forge.yaml:1); keep one of the two",
        ),
        (
            "mcp_servers:\n  git: {type: stdio, url: 'https://d.test/mcp'}",
            "forge.yaml:2: mcp.servers.git.type: stdio needs `command`, and this server has `url`; remove `type`",
        ),
        (
            "mcp:\n  servers:\n    git: {type: http, command: x}",
            "forge.yaml:3: mcp.servers.git.type: http needs `url`, and this server has `command`; remove `type`",
        ),
        (
            "mcp: {servers: {git: {type: sse, url: 'https://d.test/mcp'}}}",
            "forge.yaml:1: mcp.servers.git.type: SSE is not supported; use streamable HTTP (`type: http`)",
        ),
        (
            "mcp: {servers: {git: {type: local, command: x}}}",
            "forge.yaml:1: mcp.servers.git.type: expected one of stdio, http, streamable-http, streamable_http, "
            "got 'local'",
        ),
        ("mcp_servers: {git: {comand: x}}", "unknown key 'comand'; did you mean 'command'?"),
        ("mcp_servers: [git]", "forge.yaml:1: mcp.servers: expected a mapping, got a list"),
        (
            "mcpServers: {git: {command: x}}",
            "forge.yaml:1: mcpServers: unknown key 'mcpServers'; known: approval, budget, delegation, entry,",
        ),
    ],
)
def test_the_keys_of_other_programs_are_never_ignored(root: Path, home: ForgeHome, text: str, said: str) -> None:
    assert any(said in problem for problem in problems(root, home, text)), problems(root, home, text)
