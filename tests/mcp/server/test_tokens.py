"""Tokens: shown once, kept as hashes, gone when revoked, whoever else has the file open."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.mcp.server.tokens import PREFIX, TokenStore
from golem_forge.storage.home import ForgeHome


def test_made_by_name_and_known_by_hash_alone(home: ForgeHome) -> None:
    store = TokenStore(home)
    secret = store.create("laptop")
    other = store.create("desk.2")
    assert secret.startswith(PREFIX) and secret != other
    found = TokenStore(home).holder(secret)
    assert found is not None and found.name == "laptop"
    assert [token.name for token in store.tokens()] == ["laptop", "desk.2"]
    text = store.path.read_text()
    assert secret not in text and secret.removeprefix(PREFIX) not in text
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    for wrong in ("", PREFIX, secret[:-1], secret + "x", json.loads(text)["tokens"][0]["sha256"], "\udcff"):
        assert store.holder(wrong) is None


def test_revoked_at_once_for_another_process_too(home: ForgeHome) -> None:
    serving, shell = TokenStore(home), TokenStore(home)
    secret = shell.create("laptop")
    assert serving.holder(secret) is not None
    shell.revoke("laptop")
    assert serving.holder(secret) is None
    again = shell.create("laptop")
    held = serving.holder(again)
    assert held is not None and serving.holder(secret) is None


@table("name", ["", "a b", "-x", "a/b", "x" * 65, "ü", "a\n"])
def test_names_that_cannot_be(home: ForgeHome, name: str) -> None:
    with pytest.raises(ForgeError, match="cannot name a token"):
        TokenStore(home).create(name)
    assert TokenStore(home).tokens() == ()


def test_taken_and_missing_names_say_what_to_do(home: ForgeHome) -> None:
    store = TokenStore(home)
    store.create("laptop")
    with pytest.raises(ForgeError, match="exists; revoke it first"):
        store.create("laptop")
    with pytest.raises(ForgeError, match="did you mean 'laptop'"):
        store.revoke("labtop")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tokens": [{"id": "x"}]}', '{"tokens": 5}'])
def test_a_broken_file_admits_nobody_and_is_not_overwritten(home: ForgeHome, text: str) -> None:
    store = TokenStore(home)
    secret = store.create("laptop")
    store.path.write_text(text)
    assert store.holder(secret) is None
    with pytest.raises(ForgeError, match="cannot be read"):
        store.create("desk")
    assert store.path.read_text() == text


def test_a_link_in_its_place_is_not_followed(home: ForgeHome, tmp_path: Path) -> None:
    store = TokenStore(home)
    secret = store.create("laptop")
    os.replace(store.path, tmp_path / "elsewhere.json")
    store.path.symlink_to(tmp_path / "elsewhere.json")
    assert store.holder(secret) is None
