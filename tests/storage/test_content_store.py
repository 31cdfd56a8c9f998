"""The content store: what has a digest's name is what the digest was made of."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from golem_forge.storage.content_store import ContentStore, StoreError, content_digest
from golem_forge.storage.home import ForgeHome

FILES = {"tools.py": b"x = 1\n", "lib/helper.py": b"y = 2\n", "run.sh": b"#!/bin/sh\n"}


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(ForgeHome(tmp_path / "forge"))


def test_a_snapshot_is_read_only_complete_and_made_once(store: ContentStore) -> None:
    snapshot = store.put(FILES, executable={"run.sh"})
    modes = {
        path.relative_to(snapshot.path).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in (snapshot.path, *snapshot.path.rglob("*"))
    }
    assert modes == {".": 0o500, "lib": 0o500, "tools.py": 0o400, "lib/helper.py": 0o400, "run.sh": 0o500}
    assert (snapshot.path / "lib/helper.py").read_bytes() == b"y = 2\n"
    made = snapshot.path.stat().st_ino
    assert store.put(FILES, executable={"run.sh"}) == snapshot
    assert snapshot.path.stat().st_ino == made
    assert os.listdir(snapshot.path.parent) == [snapshot.digest.removeprefix("sha256:")]


def test_the_digest_is_over_names_bytes_and_what_may_be_executed() -> None:
    digests = {
        content_digest(FILES),
        content_digest(FILES, {"run.sh"}),
        content_digest({**FILES, "tools.py": b"x = 2\n"}),
        content_digest({("other.py" if name == "tools.py" else name): data for name, data in FILES.items()}),
    }
    assert len(digests) == 4
    assert content_digest(dict(reversed(FILES.items()))) == content_digest(FILES)


@pytest.mark.parametrize("harm", ["changed", "added", "missing", "link"])
def test_a_snapshot_that_was_touched_is_refused_and_made_anew(store: ContentStore, harm: str) -> None:
    snapshot = store.put(FILES)
    os.chmod(snapshot.path, 0o700)
    file = snapshot.path / "tools.py"
    if harm == "changed":
        os.chmod(file, 0o600)
        file.write_bytes(b"x = 3\n")
    elif harm == "added":
        (snapshot.path / "more.py").write_bytes(b"")
    else:
        file.unlink()
        if harm == "link":
            file.symlink_to("/etc/hostname")
    with pytest.raises(StoreError, match="was changed or is incomplete"):
        store.check(snapshot)
    assert store.put(FILES) == snapshot
    store.check(snapshot)
    assert file.read_bytes() == b"x = 1\n"
    assert os.listdir(snapshot.path.parent) == [snapshot.digest.removeprefix("sha256:")]


@pytest.mark.parametrize("name", ["", "../x", "/x", "a//b", "a/./b", "a\0b"])
def test_a_name_that_leaves_the_snapshot_is_refused(store: ContentStore, name: str) -> None:
    with pytest.raises(StoreError, match="not the name of a file"):
        store.put({name: b""})


def test_a_snapshot_is_named_by_the_hex_of_its_digest(store: ContentStore) -> None:
    snapshot = store.put(FILES)
    assert snapshot.digest == content_digest(FILES)
    assert snapshot.digest == f"sha256:{snapshot.path.name}"
    assert store.names() == {snapshot.path.name}


def test_a_snapshot_is_hashed_once_and_then_compared_without_opening_a_file(
    store: ContentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = store.put(FILES)
    time.sleep(0.025)  # what was written this moment is never taken for settled
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more))
    store.check(snapshot)
    assert "tools.py" in opened
    opened.clear()
    store.check(snapshot)
    assert store.put(FILES) == snapshot == store.still_whole(snapshot.digest)
    assert opened == []
    assert ContentStore(store._home).still_whole(snapshot.digest) is None  # another one has not hashed it


@pytest.mark.parametrize("harm", ["edited", "edited and dated back", "added", "removed", "exec bit", "folder swapped"])
def test_a_change_after_the_hash_is_noticed_all_the_same(store: ContentStore, harm: str) -> None:
    snapshot = store.put(FILES)
    time.sleep(0.025)
    store.check(snapshot)
    store.check(snapshot)
    os.chmod(snapshot.path / "lib", 0o700)
    file = snapshot.path / "lib" / "helper.py"
    status = file.stat()
    os.chmod(file, 0o700 if harm == "exec bit" else 0o600)
    if harm.startswith("edited"):
        file.write_bytes(b"y = 3\n")
        if "dated" in harm:
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif harm == "added":
        (snapshot.path / "lib" / "more.py").touch()
    elif harm == "removed":
        file.unlink()
    elif harm == "folder swapped":
        os.chmod(snapshot.path, 0o700)
        (snapshot.path / "lib").rename(snapshot.path.parent / "lib")
        (snapshot.path / "lib").symlink_to(snapshot.path.parent / "lib")
    assert store.still_whole(snapshot.digest) is None
    with pytest.raises(StoreError, match="was changed or is incomplete"):
        store.check(snapshot)
    with pytest.raises(StoreError, match="was changed or is incomplete"):
        store.read(snapshot)


def test_known_snapshots_are_found_read_and_removed(store: ContentStore) -> None:
    snapshot = store.put(FILES, executable={"run.sh"})
    assert store.known(snapshot.digest) == snapshot
    assert store.read(snapshot) == (FILES, {"run.sh"})
    assert store.remove(snapshot.digest)
    assert not snapshot.path.exists()
    assert store.names() == frozenset()
    assert store.known(snapshot.digest) is None
    assert not store.remove(snapshot.digest)
    with pytest.raises(StoreError):
        store.check(snapshot)


@pytest.mark.parametrize("digest", ["", "sha256:", "../../etc", "sha256:../x", "a" * 64, "sha256:" + "A" * 64])
def test_what_is_no_digest_names_no_snapshot(store: ContentStore, digest: str) -> None:
    assert store.known(digest) is None
    assert not store.remove(digest)


def test_a_link_in_place_of_a_snapshot_is_not_followed(store: ContentStore, tmp_path: Path) -> None:
    snapshot = store.put(FILES)
    snapshot.path.rename(elsewhere := tmp_path / "elsewhere")
    snapshot.path.symlink_to(elsewhere)
    assert store.known(snapshot.digest) is None
    with pytest.raises(StoreError):
        store.check(snapshot)
    assert store.put(FILES) == snapshot
    assert not snapshot.path.is_symlink()
    assert (elsewhere / "tools.py").exists()
