"""The page's files: those there are, by their own names, and no way to any other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.ui.web.front import Front

from golem_forge.core.errors import ForgeError
from golem_forge.ui.web import app
from golem_forge.ui.web.app import load_assets

TRAVERSALS = [
    "/../pyproject.toml",
    "/../../../../etc/passwd",
    "/css/../../app.py",
    "/css/../../__init__.py",
    "/./../app.py",
    "//etc/passwd",
    "///etc/passwd",
    "/%2fetc%2fpasswd",
    "/%2e%2e/app.py",
    "/%2e%2e%2fapp.py",
    "/..%2fapp.py",
    "/..%5capp.py",
    "/..\\app.py",
    "/css/..%2f..%2fapp.py",
    "/css/%2e%2e%5c%2e%2e%5capp.py",
    "/css/....//....//app.py",
    "/css/tokens.css/../../../app.py",
    "/%252e%252e%252fapp.py",
    "/..%c0%af..%c0%afetc/passwd",
    "/%c0%ae%c0%ae/app.py",
    "/....//....//app.py",
    "/..;/app.py",
    "/main.js%00.html",
    "/main.js/",
    "/main.js/../../app.py",
    "/css/",
    "/css",
    "/page/main.js",
    "/MAIN.JS",
    "/file:///etc/passwd",
    "/C:/windows/win.ini",
    "/api/../../app.py",
    "/.git/config",
    "/__init__.py",
]


async def test_no_spelling_leads_out(served: Front) -> None:
    cookie = served.cookie
    assert load_assets().keys().isdisjoint(TRAVERSALS)
    for path in TRAVERSALS:
        assert (await served.ask(path)).status == 401, path
        answer = await served.ask(path, Cookie=cookie)
        assert answer.status == 404, path
        assert b"root:" not in answer.body and b"import" not in answer.body


async def test_what_is_served(served: Front) -> None:
    shell = await served.ask("/")
    assert shell.headers["content-type"] == "text/html; charset=utf-8"
    assert shell.body == (await served.ask("/index.html")).body
    head = await served.ask("/", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(shell.body))
    script = await served.ask("/main.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.body == load_assets()["/main.js"].data
    assert (await served.ask("/main.js?x=1")).body == script.body
    wrong = await served.ask("/main.js", method="POST", cookie=True, Origin=served.address)
    assert wrong.status == 405 and "GET" in wrong.headers["allow"]


def test_what_the_page_asks_for_is_there() -> None:
    """Every file the shell and the scripts name: one that is absent is a blank page."""
    table = load_assets()
    for path, asset in table.items():
        if path == "/" or not path.endswith((".html", ".js")):
            continue
        text = re.sub(r"/\*.*?\*/|^\s*//.*?$", "", asset.data.decode(), flags=re.S | re.M)
        named = re.findall(r"""(?:\bfrom\s|\bimport\s|\bimport\(|\bsrc=|\bhref=)\s*["'](\.[^"'#]*)["']""", text)
        for name in named:
            assert resolved(path, name) in table, f"{path} names {name}"


def test_every_style_sheet_is_part_of_the_one_that_the_page_asks_for() -> None:
    table = load_assets()
    sheets = [asset.data for path, asset in table.items() if path.startswith("/css/")]
    assert sheets and all(sheet in table["/page.css"].data for sheet in sheets)


def test_nothing_comes_from_outside() -> None:
    for path, asset in load_assets().items():
        if path.endswith((".html", ".js", ".css")):
            text = asset.data.decode()
            assert not re.search(r"""(?:src|href|from|import|url)\s*[=(]?\s*["']?(?:https?:)?//""", text), path
            assert not re.search(r"\bstyle=|\son[a-z]+=[\"']", text) or not path.endswith(".html"), path


def test_a_file_of_unknown_kind_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "icons").mkdir()
    (tmp_path / "icons" / "a.svg").write_text("<svg/>")
    table = load_assets(tmp_path)
    assert set(table) == {"/", "/index.html", "/icons/a.svg"}
    assert table["/icons/a.svg"].media_type == "image/svg+xml"
    (tmp_path / "notes.txt.bak").write_text("x")
    with pytest.raises(ForgeError, match="unknown kind: /notes"):
        load_assets(tmp_path)


def test_the_page_is_part_of_the_package() -> None:
    """The wheel takes the whole folder of the package; the page lies inside it."""
    package = Path(app.__file__).parent
    on_disk = {f"/{path.relative_to(package / 'page').as_posix()}" for path in (package / "page").rglob("*.*")}
    assert on_disk <= set(load_assets()) and "/index.html" in on_disk


def resolved(path: str, name: str) -> str:
    parts = path.split("/")[:-1]
    for part in name.split("/"):
        if part == "..":
            parts.pop()
        elif part not in {".", ""}:
            parts.append(part)
    return "/".join(parts)
