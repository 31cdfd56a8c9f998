"""Path operands are written as host paths where zones stand nowhere else; nothing else of a command changes."""

from __future__ import annotations

from pathlib import Path

from tests.tables import table

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.toolsets.exec.environment import rewrite_paths, to_host_path


@table(
    ("text", "expected"),
    [
        ("cat /workspace/a.txt", "cat {w}/a.txt"),
        ("cat a.txt | wc -l", "cat a.txt | wc -l"),
        ("cd /workspace/src && ls 2>/dev/null; cat '/docs/a b'", "cd {w}/src && ls 2>/dev/null; cat '{d}/a b'"),
        ("grep /workspace /workspace/a", "grep /workspace {w}/a"),
        ("echo /workspace", "echo /workspace"),
        ("bash -c 'cat /workspace/a'", "cat {w}/a"),
        ("cat ../docs/x /etc/hosts", "cat {d}/x /etc/hosts"),
        ("cat $X /workspace/a", "cat $X /workspace/a"),
        ('ls  "/workspace/"x', "ls  {w}/x"),
    ],
)
def test_operands(text: str, expected: str, sandbox: Sandbox, workspace: Path, tmp_path: Path) -> None:
    found = rewrite_paths(text, lambda word: to_host_path(word, "/workspace", sandbox))
    assert found == expected.format(w=workspace, d=tmp_path / "host-docs")
