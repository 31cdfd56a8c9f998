"""The content store: what has a digest's name is what the digest was made of."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from golem_forge.config.home import ForgeHome
from golem_forge.sandbox.store import ContentStore, StoreError, content_digest

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
    assert os.listdir(snapshot.path.parent) == [snapshot.digest]


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
    assert os.listdir(snapshot.path.parent) == [snapshot.digest]


@pytest.mark.parametrize("name", ["", "../x", "/x", "a//b", "a/./b", "a\0b"])
def test_a_name_that_leaves_the_snapshot_is_refused(store: ContentStore, name: str) -> None:
    with pytest.raises(StoreError, match="no name of a file"):
        store.put({name: b""})
