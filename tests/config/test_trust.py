"""Trust records: given for bytes, gone with one of them (A19, file level)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from golem_forge.config.trust import MAX_FILE_BYTES, MAX_FILES, TrustStore
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome


@pytest.fixture
def store(home: ForgeHome) -> TrustStore:
    return TrustStore(home)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "app"
    (root / ".forge" / "sub").mkdir(parents=True)
    (root / "forge.yaml").write_text("approval: {mode: strict}\n")
    (root / ".forge" / "rules.yaml").write_text("rules: []\n")
    (root / ".forge" / "sub" / "note").write_text("one\n")
    return root


def test_round_trip(store: TrustStore, home: ForgeHome, root: Path) -> None:
    assert not store.trusted(root)
    snapshot = store.give(root)
    assert store.trusted(root) and TrustStore(home).trusted(root)
    assert list(snapshot.files) == [".forge/rules.yaml", ".forge/sub/note", "forge.yaml"]
    assert store.changes(root) == ""
    assert store.withdraw(root) and not store.trusted(root)
    assert not store.withdraw(root)


def test_the_record_is_the_owners_alone(home: ForgeHome, root: Path) -> None:
    TrustStore(home).give(root)
    [record] = home.trust_dir.iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert home.trust_dir.stat().st_mode & 0o777 == 0o700
    assert json.loads(record.read_text())["root"] == str(root)


@pytest.mark.parametrize("name", ["forge.yaml", ".forge/rules.yaml", ".forge/sub/note"])
def test_a19_one_changed_byte_ends_it_and_the_diff_shows_it(store: TrustStore, root: Path, name: str) -> None:
    store.give(root)
    assert store.trusted(root)
    before = (root / name).read_bytes()
    (root / name).write_bytes(before[:-2] + b"X\n")  # the same size: only the content tells
    assert not store.trusted(root)
    diff = store.changes(root)
    assert f"--- a/{name}" in diff and f"+++ b/{name}" in diff and "X" in diff
    (root / name).write_bytes(before)
    assert store.trusted(root)


def test_what_becomes_code_by_another_line_end_is_shown_as_a_change(home: ForgeHome, root: Path) -> None:
    """Python takes a form feed for a blank, so the first line is all comment; another change stands beside it."""
    note, module = root / ".forge" / "note", root / ".forge" / "tools.py"
    module.write_text("# see below\x0cevil()\nx = 1\n")
    note.write_text("link to /etc/passwd")
    (store := TrustStore(home)).give(root)
    module.write_text("# see below\nevil()\nx = 2\n")
    note.unlink()
    note.symlink_to("/etc/passwd")
    (root / ".forge" / "a\n-blocked").write_text("new\n")
    rows = store.changes(root).split("\n")
    assert {"-# see below\x0cevil()", "+evil()", "# It was a text and is a link now."} < set(rows)
    assert "+++ b/.forge/a\\n-blocked" in rows and "-blocked" not in rows


def test_files_that_come_or_go_end_it(store: TrustStore, root: Path) -> None:
    store.give(root)
    new = root / ".forge" / "new"
    new.write_text("hello\n")
    assert not store.trusted(root)
    assert "--- /dev/null\n+++ b/.forge/new" in store.changes(root)
    new.unlink()
    assert store.trusted(root)
    (root / "forge.yaml").unlink()
    assert not store.trusted(root)
    assert "+++ /dev/null" in store.changes(root)


def test_trust_is_given_for_what_was_shown_not_for_what_is_there_by_then(store: TrustStore, root: Path) -> None:
    shown = store.snapshot(root)
    (root / "forge.yaml").write_text("approval: {mode: approve_all}\n")
    store.give(root, shown)
    assert not store.trusted(root)


def test_links_are_recorded_and_never_followed(home: ForgeHome, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    (root / ".forge" / "link").symlink_to(secret)
    (root / ".forge" / "loop").symlink_to(root / ".forge")
    store = TrustStore(home)
    snapshot = store.give(root)
    assert snapshot.files[".forge/link"] == f"link to {secret}"
    assert "s3cret" not in json.dumps(snapshot.files)
    secret.write_text("other")
    assert store.trusted(root)
    (root / ".forge" / "link").unlink()
    (root / ".forge" / "link").symlink_to("/etc/passwd")
    assert not store.trusted(root)


def test_a_link_to_the_root_is_the_root(home: ForgeHome, root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    store = TrustStore(home)
    store.give(tmp_path / "alias")
    assert store.trusted(root)


def test_bounded(store: TrustStore, root: Path) -> None:
    store.give(root)
    big = root / ".forge" / "big"
    big.write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert not store.trusted(root)
    with pytest.raises(ConfigError, match="larger than"):
        store.give(root)
    big.unlink()
    for number in range(MAX_FILES):
        (root / ".forge" / f"f{number}").touch()
    with pytest.raises(ConfigError, match="more than"):
        store.give(root)


def test_what_cannot_be_believed_is_not_trusted(store: TrustStore, home: ForgeHome, root: Path) -> None:
    store.give(root)
    [record] = home.trust_dir.iterdir()
    for content in ("", "[]", '{"version": 1}', json.dumps({"version": 1, "root": "/x", "digest": "", "files": {}})):
        record.write_text(content)
        assert not store.trusted(root)


def test_binary_and_odd_names(home: ForgeHome, root: Path) -> None:
    (root / ".forge" / "blob").write_bytes(b"\xff\xfe\x00")
    (root / ".forge" / os.fsdecode(b"odd\xff")).write_text("x")
    os.mkfifo(root / ".forge" / "fifo")
    store = TrustStore(home)
    snapshot = store.give(root)
    assert store.trusted(root)
    assert snapshot.files[".forge/blob"].startswith("binary, 3 bytes, sha256 ")
    (root / ".forge" / "blob").write_bytes(b"\xff\xfe\x01")
    assert not store.trusted(root)


def test_further_files_count(home: ForgeHome, root: Path) -> None:
    front_matter = {"main.worker": b"name: main"}
    store = TrustStore(home, extra=lambda _: front_matter.items())
    store.give(root)
    assert store.trusted(root)
    front_matter["main.worker"] = b"name: Main"
    assert not store.trusted(root)
    assert "+name: Main" in store.changes(root)
