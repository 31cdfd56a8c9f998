"""Sources: what may be imported from, and that nothing but a full commit id pins a repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.usertools.diagnostics import SharingError
from golem_forge.usertools.share import GitSource, LocalSource, parse_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@table(
    ("text", "url", "below"),
    [
        (f"git+https://host.test/a/repo@{COMMIT}", "https://host.test/a/repo", ""),
        (f"git+https://host.test/a/repo.git@{COMMIT}#sub/dir", "https://host.test/a/repo.git", "sub/dir"),
        (f"git+https://host.test/@scope/repo@{COMMIT.upper()}#/sub/", "https://host.test/@scope/repo", "sub"),
        (f"git@host.test:a/repo.git@{COMMIT}#sub", "git@host.test:a/repo.git", "sub"),
        (f"git+ssh://git@host.test:2222/a/repo@{COMMIT}", "ssh://git@host.test:2222/a/repo", ""),
        (f"git+ssh://host.test/repo@{COMMIT}", "ssh://host.test/repo", ""),
        (f"github:owner/repo@{COMMIT}", "https://github.com/owner/repo", ""),
        (f"github:owner/my.repo@{COMMIT}/sub/dir", "https://github.com/owner/my.repo", "sub/dir"),
    ],
)
def test_git_sources(text: str, url: str, below: str) -> None:
    source = parse_source(text)
    assert source == GitSource(url=url, commit=COMMIT, below=below)
    assert parse_source(source.text) == source, "what the lock keeps can be imported again"


@table("pin", ["@main", "@v1.0", f"@{COMMIT[:39]}", f"@{COMMIT}0", "@HEAD", "@", "", f"@{COMMIT}~1"])
def test_anything_but_a_full_commit_id_is_refused(pin: str) -> None:
    for start in (
        "git+https://host.test/repo",
        "github:owner/repo",
        "git@host.test:repo",
        "git+ssh://git@host.test/repo",
    ):
        with pytest.raises(SharingError, match="pin a full commit id"):
            parse_source(start + pin)


@table(
    "text",
    [
        f"git+ssh://-oProxyCommand=x/repo@{COMMIT}",
        f"git+ssh://git:secret@host.test/repo@{COMMIT}",
        f"git@-oProxyCommand=x:repo@{COMMIT}",
        f"git@host.test:-repo@{COMMIT}",
        f"git+file:///repo@{COMMIT}",
        f"git+http://host.test/repo@{COMMIT}",
        f"git+ext::sh -c touch% /tmp/x@{COMMIT}",
        f"git+--upload-pack=x@{COMMIT}",
        f"git+https:///repo@{COMMIT}",
        f"git+https://[::1/repo@{COMMIT}",
        f"git+https://host.test/repo@{COMMIT}#../up",
        f"git+https://host.test/repo@{COMMIT}#a\nb",
        f"github:-x/repo@{COMMIT}",
        f"github:owner/..@{COMMIT}",
        f"github:owner/repo@{COMMIT}/../up",
        "https://host.test/tool.tar.gz",
        "FTP://host.test/x",
        "",
        "a\x1b[2Jb",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(SharingError):
        parse_source(text)


def test_a_token_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(SharingError) as refused:
        parse_source(f"git+https://me:canary-4711@host.test/repo@{COMMIT}")
    assert "canary" not in refused.value.message


def test_a_local_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_source("tool@2.tar.gz") == LocalSource(path=tmp_path / "tool@2.tar.gz")
