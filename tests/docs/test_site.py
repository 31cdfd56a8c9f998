"""The site builds without a warning, its reference is what the code says, and what its pages name is there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from tests.ready import ReadyForge

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
PYTHON = ROOT / "build" / "docs-venv" / "bin" / "python"


def test_the_reference_is_what_the_code_says(ready_forge: ReadyForge) -> None:
    done = ready_forge.program("scripts/write_reference.py", "--check", cwd=ROOT, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)  # a whole generator of sites
def test_the_site_builds_and_leads_nowhere_else() -> None:
    if not PYTHON.exists():
        assert os.environ.get("CI") != "true", "make docs installs the generator of the site"
        pytest.skip("the generator of the site is not installed: make docs")
    done = subprocess.run([PYTHON, "scripts/build_site.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (SITE / "index.html").read_text()
    assert "Start in ten minutes" in home
    assert 'data-md-color-scheme="slate"' in home and 'data-md-color-scheme="default"' in home
    assert "open_session" in (SITE / "reference" / "python.html").read_text()
    assert "](start.html): " in (SITE / "llms.txt").read_text()
    assert "# Start in ten minutes" in (SITE / "llms-full.txt").read_text()


def test_every_page_is_in_the_menu_and_every_link_leads_to_a_page_and_a_heading(tmp_path: Path) -> None:
    """As the generator checks them, but without it."""
    builder = build_site()
    builder.SOURCE = tmp_path
    assert [*builder.assemble(), *builder.menu_problems()] == []
    pages = {file.relative_to(tmp_path): _CODE_BLOCK.sub("", file.read_text()) for file in tmp_path.rglob("*.md")}
    headings = {page: anchors(text) for page, text in pages.items()}
    wrong, followed = [], 0
    for page, text in pages.items():
        for target, anchor in re.findall(r"\]\(((?:[^)\s#:]+\.md)?)#([^)\s]+)\)", re.sub(r"`[^`\n]+`", "", text)):
            named = Path(os.path.normpath(page.parent / target)) if target else page
            followed += 1
            if anchor not in headings[named]:
                wrong.append(f"{page}: there is no {target}#{anchor}")
    assert followed > 100 and wrong == []


_CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """Of its headings, as the generator names them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", page, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = plain = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words, flags=re.ASCII).strip().lower())
        again = 0
        while name in found:
            again += 1
            name = f"{plain}_{again}"
        found.add(name)
    return found


@pytest.mark.parametrize("page", ["threat-model.md", "platforms.md"])
def test_the_files_that_the_page_names_are_there(page: str) -> None:
    named = {
        name.partition("::")[0] for name in re.findall(r"`((?:tests|src|scripts)/[^`]+)`", (DOCS / page).read_text())
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_each_promise_names_a_test_that_tries_it() -> None:
    page = (DOCS / "threat-model.md").read_text()
    promised = page[page.index("\n## Who may be hostile") : page.index("\n## What was not tried")]
    promises = re.split(r"^- ", promised, flags=re.MULTILINE)[1:]
    tried = {promise.partition("\n")[0]: re.findall(r"- `(tests/.+)::(test_\w+)`", promise) for promise in promises}
    assert len(tried) > 40
    assert [promise for promise, tests in tried.items() if not tests] == []
    named = [one for tests in tried.values() for one in tests]
    assert [one for one in named if f"def {one[1]}(" not in (ROOT / one[0]).read_text()] == []


def test_each_message_of_troubleshooting_is_one_that_people_see() -> None:
    source = " ".join(file.read_text() for file in (ROOT / "src" / "golem_forge").rglob("*.py"))
    messages = re.findall(r"^### `([^`]+)`$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(messages) > 10
    pieces = [
        (message, piece.strip(" '.")) for message in messages for piece in message.split("…") if piece.strip(" '.")
    ]
    assert [message for message, piece in pieces if piece not in source] == []


def build_site() -> ModuleType:
    """scripts/build_site.py."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "scripts" / "build_site.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Over a repository with two pages, one of them in the menu."""
    module = build_site()
    for name, place in {"ROOT": "", "DOCS": "docs", "SOURCE": "build/source", "SITE": "build/site"}.items():
        monkeypatch.setattr(module, name, tmp_path / place)
    monkeypatch.setattr(module, "AT_THE_ROOT", {"SECURITY.md": "security.md"})
    monkeypatch.setattr(module, "ONLY_CHECKED", ("README.md",))
    for name in ("docs/index.md", "docs/b.md", "SECURITY.md", "README.md", "tool.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# Page\n")
    (tmp_path / "mkdocs.yml").write_text("nav: [{Home: index.md}, {Help: [security.md, gone.md]}]\n")
    return module


def test_links_out_of_docs_are_kept_checked_or_taken_away(builder: ModuleType, tmp_path: Path) -> None:
    text = "[s](../SECURITY.md#a) [t](../tool.py) [no](../none.md)\n`[x](y.md)`\n```\n[x](y.md)\n```\n"
    (tmp_path / "docs" / "b.md").write_text(text)
    (tmp_path / "README.md").write_text("\n[no](docs/none.md)\n")
    assert builder.assemble() == ["docs/b.md:1: there is no ../none.md", "README.md:2: there is no docs/none.md"]
    assert (tmp_path / "build/source/b.md").read_text() == text.replace("../SECURITY.md", "security.md").replace(
        "[t](../tool.py)", "t"
    )


def test_a_page_in_no_menu_and_a_menu_without_its_page_are_problems(builder: ModuleType) -> None:
    assert builder.assemble() == []
    assert builder.menu_problems() == [
        "b.md is in no menu: add it to nav in mkdocs.yml",
        "mkdocs.yml: nav names gone.md, and there is no such page",
    ]


@pytest.mark.parametrize(
    ("html", "asks"),
    [
        ('<a href="https://example.com">x</a><link rel="canonical" href="https://example.com">', False),
        ('<script src="assets/a.js"></script><link href="assets/a.css" rel="stylesheet">', False),
        ('<script src="https://cdn.example.com/a.js"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example.com/a.css">', True),
        ('<style>@import "https://fonts.example.com/a.css";</style>', True),
        ("<style>a { background: url(https://example.com/a.png) }</style>", True),
    ],
)
def test_a_page_that_asks_another_host_is_a_problem(builder: ModuleType, tmp_path: Path, html: str, asks: bool) -> None:
    (tmp_path / "build" / "site").mkdir(parents=True)
    (tmp_path / "build" / "site" / "a.html").write_text(html)
    assert bool(builder.requests_to_others()) is asks
