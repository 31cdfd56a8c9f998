"""What trust covers: workers' front matter and their code, byte for byte; instructions may change freely (W15)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.agent.conftest import put
from tests.deadlines import PATIENCE

from golem_forge.agent import trust
from golem_forge.agent.trust import TrustCover, covered_files, trust_store
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import file_stamp, forge_home

MAIN = "---\nname: main\ntoolsets:\n  custom: {module: ./tools.py, tools: [x]}\n---\nInstructions\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "app"
    put(root, "forge.yaml", "worker_paths: [team]\n")
    put(root, "main.worker", MAIN)
    put(root, "tools.py", "import helper\n")
    put(root, "helper.py", "A = 1\n")
    put(root, "unused.py", "")
    return root


def names(root: Path) -> list[str]:
    return [name for name, _ in covered_files(root)]


def settle(root: Path) -> None:
    """Waits until the last change is so long ago that the files' stamps can be relied on."""
    paths = [root, *root.rglob("*"), *forge_home().path.rglob("*")]
    deadline = time.monotonic() + PATIENCE
    while not all(seen.settled for path in paths if (seen := file_stamp(path))):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_front_matter_modules_and_imports(root: Path) -> None:
    assert dict(covered_files(root)) == {
        "main.worker": b"name: main\ntoolsets:\n  custom: {module: ./tools.py, tools: [x]}\n",
        "tools.py": b"import helper\n",
        "helper.py": b"A = 1\n",
    }


def test_every_worker_that_can_be_found(root: Path) -> None:
    put(root, "team/a.worker", "---\nname: a\ntoolsets: {workers: {allow: [../deep/er/b.worker]}}\n---\n")
    put(root, "team/c/c.worker", "---\nname: c\n---\n")
    put(root, "deep/er/b.worker", "---\nname: b\ntoolsets: {custom: [{module: more.py, tools: [y]}]}\n---\n")
    put(root, "deep/er/more.py", "")
    put(root, "deep/other.worker", "---\nname: nobody\n---\n")
    assert names(root) == [
        *("deep/er/b.worker", "deep/er/more.py", "helper.py", "main.worker"),
        *("team/a.worker", "team/c/c.worker", "tools.py"),
    ]
    put(root, "forge.yaml", "entry: deep/other.worker\n")
    assert names(root) == ["deep/other.worker", "helper.py", "main.worker", "tools.py"]


def test_broken_files_are_covered_as_far_as_they_go(root: Path) -> None:
    put(root, "main.worker", "no front matter")
    put(root, "b.worker", "---\nname: [\n---\n")
    put(root, "forge.yaml", "worker_paths: {\n")
    assert dict(covered_files(root)) == {"main.worker": b"no front matter", "b.worker": b"name: [\n"}


@pytest.mark.parametrize(
    ("name", "before", "after", "trusted"),
    [
        ("main.worker", "Instructions", "Other words", True),
        ("main.worker", "tools: [x]", "tools: [y]", False),
        ("main.worker", "name: main", "name: main ", False),
        ("tools.py", "import helper", "import  helper", False),
        ("helper.py", "1", "2", False),
        ("unused.py", "", "A = 1", True),
        ("forge.yaml", "[team]", "[ team]", False),
    ],
)
def test_any_changed_byte_of_these_ends_the_trust_W15(
    root: Path, name: str, before: str, after: str, trusted: bool
) -> None:
    store = trust_store(forge_home())
    store.give(root)
    settle(root)
    assert store.trusted(root) and store.trusted(root)
    text = (root / name).read_text()
    put(root, name, text.replace(before, after) if before else after)
    assert store.trusted(root) is trusted
    assert trust_store(forge_home()).trusted(root) is trusted
    if not trusted:
        assert f"+++ b/{name}" in store.changes(root)


@pytest.mark.parametrize("new", ["b.worker", "team/b/b.worker", "helper/__init__.py"])
def test_a_new_file_that_would_be_used_ends_the_trust(root: Path, new: str) -> None:
    (root / "team").mkdir()
    store = trust_store(forge_home())
    store.give(root)
    settle(root)
    assert store.trusted(root)
    put(root, new, "---\nname: b\n---\n" if new.endswith("worker") else "")
    assert not store.trusted(root)


def test_trust_is_for_the_bytes_that_were_read(root: Path) -> None:
    store = trust_store(forge_home())
    store.give(root)
    front = dict(covered_files(root))["main.worker"]
    assert store.trusted_with(root, {"main.worker": front})
    assert not store.trusted_with(root, {"main.worker": front + b"# more\n"})
    assert not store.trusted_with(root, {"elsewhere.worker": b""}), "a file that is not covered"


@pytest.mark.parametrize("name", ["main.worker", "tools.py", "helper.py"])
def test_a_link_that_leads_outside_cannot_be_trusted(root: Path, tmp_path: Path, name: str) -> None:
    outside = put(tmp_path, "outside", (root / name).read_text())
    (root / name).unlink()
    (root / name).symlink_to(outside)
    store = trust_store(forge_home())
    with pytest.raises(ConfigError, match="link that leads outside the program"):
        store.give(root)
    assert not store.trusted(root)


def test_a_module_outside_cannot_be_trusted(root: Path) -> None:
    put(root, "main.worker", MAIN.replace("./tools.py", "../tools.py"))
    with pytest.raises(ConfigError, match="lies outside the program"):
        covered_files(root)


def test_nothing_is_read_again_while_nothing_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cover = TrustCover()
    settle(root)
    first = cover(root)
    monkeypatch.setattr(trust, "read_inside", lambda *_: pytest.fail("read again"))
    assert cover(root) is first
    monkeypatch.undo()
    put(root, "helper.py", "A = 3\n")
    assert dict(cover(root))["helper.py"] == b"A = 3\n"


def test_a_program_file_that_is_no_file_any_more_is_not_waited_for(root: Path) -> None:
    """Trust is asked at every call: a fifo, or a file without end, in the place of forge.yaml must not stop Forge."""
    store = trust_store(forge_home())
    store.give(root)
    (root / "forge.yaml").unlink()
    os.mkfifo(root / "forge.yaml")
    assert not store.trusted(root)
    (root / "forge.yaml").unlink()
    with open(root / "forge.yaml", "wb") as file:
        file.truncate(1 << 40)  # sparse: no byte of it is on disk
    assert not store.trusted(root)


def test_a_program_of_too_many_workers_is_refused_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threat: a stranger's program whose files take hours to parse before anybody can be asked about it."""
    for number in range(30):
        put(root, f"w{number}.worker", f"---\nname: w{number}\n---\n")
    monkeypatch.setattr(trust, "MAX_FILES", 20)
    with pytest.raises(ConfigError, match="cannot be trusted"):
        covered_files(root)
    monkeypatch.setattr(trust, "MAX_FILES", 100)
    monkeypatch.setattr(trust, "MAX_TOTAL_BYTES", 100)
    with pytest.raises(ConfigError, match="cannot be trusted"):
        covered_files(root)


def test_a_time_in_the_future_does_not_make_a_stamp_settled(root: Path) -> None:
    """Threat: same size, same tick of the clock, and `modified` set by hand: the change would not be seen."""
    path = put(root, "tools.py", "import helper\n")
    os.utime(path, (4_000_000_000, 4_000_000_000))
    seen = file_stamp(path)
    assert seen is not None and not seen.settled
