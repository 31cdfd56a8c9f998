"""A worker has the zones its file names, never wider than the program's or its caller's (W5, W15, W35)."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.files.worker_file import parse_worker
from golem_forge.agent.session_plan import BUILT_IN_WORKER, sandbox_for
from golem_forge.config.program import load_program
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import forge_home


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, sandbox: str, *, parent: Sandbox | None = None, trusted: bool = True) -> Sandbox:
        front = f"name: w\nsandbox: {sandbox}" if sandbox else "name: w"
        worker = parse_worker(f"---\n{front}\n---\n".encode(), "main.worker", self.root / "main.worker")
        assert isinstance(worker, Worker), worker
        return self.open_worker(worker, parent=parent, trusted=trusted)

    def open_worker(self, worker: Worker, *, parent: Sandbox | None = None, trusted: bool = True) -> Sandbox:
        program = load_program(self.root, forge_home(), trusted=lambda _: trusted)
        return sandbox_for(program, worker, forge_home(), [], parent=parent, parent_name="main")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = tmp_path / "app"
    for name in ("work/src", "docs", "secret", "../outside"):
        (root / name).mkdir(parents=True)
    (root / "forge.yaml").write_text(
        "sandbox:\n  zones:\n    workspace: {path: work, approval: {delete: blocked}}\n"
        "    docs: {path: docs, mode: ro}\n    secret: {path: secret}\n"
    )
    return Place(root)


def test_exactly_the_zones_it_names(place: Place) -> None:
    with place.open(
        "{zones: [{name: docs}, {name: workspace, approval: {write: preApproved, delete: preApproved}}]}"
    ) as sandbox:
        assert sandbox.describe_zones() == "/docs (ro), /workspace (rw)"
        workspace = sandbox.zones["workspace"]
        assert workspace.verdict(Verb.WRITE) is Verdict.PRE_APPROVED, "forge.yaml wrote none"
        assert workspace.verdict(Verb.DELETE) is Verdict.BLOCKED, "forge.yaml's word is the floor"
        assert sandbox.default_zone == "workspace"


def test_mode_subpath_and_default_zone(place: Place) -> None:
    with place.open(
        "{default_zone: docs, zones: [{name: workspace, mode: ro, subpath: src}, {name: docs}]}"
    ) as sandbox:
        assert sandbox.default_zone == "docs"
        assert sandbox.zones["workspace"].label == "/workspace (ro)"
        assert sandbox.zones["workspace"].host == str(place.root / "work/src")


def test_without_the_block_there_is_no_file_access_W5(place: Place) -> None:
    sandbox = place.open("")
    assert not sandbox.zones and not sandbox.has_block
    with pytest.raises(ForgeError) as caught:
        sandbox.target("a.txt", Verb.READ)
    assert (caught.value.code, caught.value.status) == ("NO_SANDBOX", "sandbox_denied")
    assert 'Add "sandbox: {zones: [{name: workspace}]}"' in caught.value.message


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (
            "{zones: [{name: other}]}",
            ".zones[0].name: Worker 'w' names zone 'other', which forge.yaml does not have. Add to forge.yaml:",
        ),
        (
            "{zones: [{name: docs}, {name: workspce}]}",
            ".zones[1].name: Worker 'w' names zone 'workspce', which forge.yaml does not have; did you mean "
            "'workspace'? Or add to forge.yaml:",
        ),
        ("{zones: [{name: docs, mode: rw}]}", ": Worker 'w' asks for zone 'docs' rw; forge.yaml has it ro."),
        (
            "{zones: [{name: docs, approval: {write: ask}}]}",
            ": Zone 'docs' is mode: ro, so approval.write has no effect",
        ),
        ("{zones: [{name: workspace, subpath: gone}]}", ": Zone 'workspace', subpath 'gone': File not found"),
        ("{zones: [{name: workspace, subpath: ../docs}]}", ": Zone 'workspace', subpath '../docs'"),
    ],
)
def test_a_root_worker_that_asks_for_more_does_not_load(place: Place, block: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place.open(block)
    assert caught.value.problems[0].startswith(f"main.worker:3: sandbox{said}")


def test_a_broken_zone_of_the_program_is_told_with_its_line(place: Place) -> None:
    (place.root / "secret").rmdir()
    with pytest.raises(ConfigError, match=r"^forge\.yaml:5: Zone 'secret': its directory does not exist"):
        place.open("{zones: [{name: docs}]}")


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("{zones: [{name: workspace}, {name: secret}]}", "ZONE_ACCESS_DENIED"),
        ("{zones: [{name: docs, mode: rw}]}", "PERMISSION_ESCALATION"),
        ("{zones: [{name: workspace, subpath: ../docs}]}", "PERMISSION_ESCALATION"),
    ],
)
def test_a_child_reaches_no_further_than_its_caller_W35(place: Place, block: str, code: str) -> None:
    parent = place.open("{zones: [{name: workspace}, {name: docs}]}")
    with pytest.raises(ForgeError) as caught:
        place.open(block, parent=parent)
    assert (caught.value.code, caught.value.status) == (code, "sandbox_denied")
    if code == "PERMISSION_ESCALATION":
        assert caught.value.message.startswith("Worker 'w' asks for more than 'main' has: /")
    assert parent.describe_zones() == "/docs (ro), /workspace (rw)"


def test_a_child_combines_verdicts_and_inherits_nothing(place: Place) -> None:
    parent = place.open("{zones: [{name: workspace, approval: {write: ask}}, {name: docs}]}")
    child = place.open("{zones: [{name: workspace, subpath: src, approval: {write: preApproved}}]}", parent=parent)
    assert child.describe_zones() == "/workspace (rw)"
    assert child.zones["workspace"].verdict(Verb.WRITE) is Verdict.ASK
    assert not place.open("", parent=parent).zones
    with pytest.raises(ForgeError, match="Zones: none"):
        place.open("{zones: [{name: workspace}]}", parent=place.open(""))


def test_an_untrusted_programs_zone_elsewhere_is_gone_and_the_worker_starts_W15(place: Place) -> None:
    (place.root / "forge.yaml").write_text(
        "sandbox: {zones: {workspace: {path: work}, far: {path: ../outside, mode: ro}}}\n"
    )
    block = "{default_zone: far, zones: [{name: far}, {name: workspace}]}"
    assert place.open(block).zones.keys() == {"far", "workspace"}
    sandbox = place.open(block, trusted=False)
    assert sandbox.zones.keys() == {"workspace"} and sandbox.default_zone == "workspace"
    with pytest.raises(ForgeError) as caught:
        sandbox.target("/far/x", Verb.READ)
    assert caught.value.code == "ZONE_ACCESS_DENIED"


def test_the_built_in_worker_has_all_zones_of_the_program(place: Place) -> None:
    sandbox = place.open_worker(BUILT_IN_WORKER)
    assert sandbox.zones.keys() == {"workspace", "docs", "secret"} and sandbox.builtin_worker
