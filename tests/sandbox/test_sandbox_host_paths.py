"""Host paths in messages become addresses."""

from __future__ import annotations

from pathlib import Path

from tests.tables import table

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import ZoneRequest


@table(
    ("text", "expected"),
    [
        ("cannot open {workspace}/a b", "cannot open /workspace/a b"),
        ("in {workspace}.", "in /workspace."),
        ("'{workspace}': {scratch}/x, {docs}", "'/workspace': /scratch/x, /docs"),
        ("gcc -I{workspace}/include", "gcc -I/workspace/include"),
        ("PATH={workspace}/bin:{scratch}/bin", "PATH=/workspace/bin:/scratch/bin"),
        ("file://{workspace}/a", "file:///workspace/a"),
        ("{workspace}! {workspace}\n{workspace}", "/workspace! /workspace\n/workspace"),
        ("{workspace}-evil/a", "{workspace}-evil/a"),
        ("{workspace}2 {workspace}.bak", "{workspace}2 {workspace}.bak"),
        ("/data{workspace}/a", "/data{workspace}/a"),
        ("/proc/self/root{workspace}/a, /proc/7/root{docs}", "/proc/self/root/workspace/a, /proc/7/root/docs"),
        ("/usr/..{workspace}/a", "/usr/../workspace/a"),
        ("/proc/self/root{forge_home}/rules.yaml", "/proc/self/root<outside>"),
        ("/data/proc/self/root{workspace}/a", "/data/proc/self/root{workspace}/a"),
        ("{forge_home}/rules.yaml: bad", "<outside>: bad"),
        ("nothing here", "nothing here"),
    ],
)
def test_only_whole_directories_are_replaced(
    sandbox: Sandbox, directories: dict[str, Path], text: str, expected: str
) -> None:
    assert sandbox.virtualise(text.format_map(directories)) == expected.format_map(directories)


def test_a_child_reads_outside_where_only_its_parent_may_go(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "src").mkdir()
    child = sandbox.restricted("coder", "main", [ZoneRequest(name="workspace", subpath="src")])
    assert child.virtualise(f"{workspace}/src/a {workspace}/b/c") == "/workspace/a <outside>"
