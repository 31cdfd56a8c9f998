"""Builds the documentation site into build/site, and refuses to when a reader would be led nowhere.

    build/docs-venv/bin/python scripts/build_site.py

Takes docs/ and the pages at the root of the repository that belong to the site. Gives build/site with llms.txt (every
page with its first sentence) and llms-full.txt (every page as text). Exits with 1 and names each problem: a link or an
anchor without a target, a page in no menu, a menu entry without a page, a page that would ask another host for
something. The generator (Zensical) checks links between pages; what lies outside of docs/ is checked here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
SOURCE: Final = ROOT / "build" / "site-source"
SITE: Final = ROOT / "build" / "site"
AT_THE_ROOT: Final = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Pages of the site that stand at the root of the repository."""
ONLY_CHECKED: Final = ("README.md", "examples/README.md")
"""No pages of the site; their links must lead somewhere all the same."""

_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_OTHER_HOST: Final = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=\"?(?:https?:)?//[^\s\">]+"
    r"|<link\b(?![^>]*rel=\"?canonical)[^>]*?\bhref=\"?(?:https?:)?//[^\s\">]+"
    r"|@import\s+[^;]*?//[^;]+|url\(\s*[\"']?(?:https?:)?//[^)]+"
)


def main() -> int:
    problems = [*assemble(), *menu_problems()]
    if not problems:
        problems = generate()
    if not problems:
        problems = requests_to_others()
        write_for_models()
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"built {SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages")
    return 0


def assemble() -> list[str]:
    """Puts the sources of the site together; gives the links that lead to no file of the repository."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    problems: list[str] = []
    for file in sorted(DOCS.rglob("*")):
        if file.is_file():
            place = SOURCE / file.relative_to(DOCS)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".md":
                place.write_text(page_text(file, place.relative_to(SOURCE), problems))
            else:
                shutil.copyfile(file, place)
    for name, page in AT_THE_ROOT.items():
        (SOURCE / page).write_text(page_text(ROOT / name, Path(page), problems))
    for name in ONLY_CHECKED:
        page_text(ROOT / name, Path("index.md"), problems)
    return problems


def page_text(file: Path, place: Path, problems: list[str]) -> str:
    """The page as it stands at `place` in the site: a link to a file of the repository that is no page loses its
    target, and its text stays."""
    text = file.read_text()
    literal = [found.span() for pattern in (_FENCE, _CODE) for found in pattern.finditer(text)]

    def link(found: re.Match[str]) -> str:
        mark, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or re.match(r"[a-z]+:", target) or any(start <= found.start() < end for start, end in literal):
            return found[0]
        named = (file.parent / target).resolve()
        if not named.exists():
            line = text.count("\n", 0, found.start()) + 1
            problems.append(f"{file.relative_to(ROOT)}:{line}: there is no {target}")
            return found[0]
        if named.is_dir() and (named / "README.md").is_file():
            named /= "README.md"
        page = page_of(named)
        if page is None:
            return label
        return f"{mark}[{label}]({os.path.relpath(page, place.parent)}{anchor})"

    return _LINK.sub(link, text)


def page_of(file: Path) -> Path | None:
    """Where a file of the repository stands in the site."""
    if file.is_relative_to(DOCS) and file.is_file():
        return file.relative_to(DOCS)
    page = AT_THE_ROOT.get(str(file.relative_to(ROOT))) if file.is_relative_to(ROOT) else None
    return Path(page) if page else None


def menu_problems() -> list[str]:
    listed = menu()
    pages = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.md")}
    return [
        *(f"{page} is in no menu: add it to nav in mkdocs.yml" for page in sorted(pages - set(listed))),
        *(f"mkdocs.yml: nav names {page}, and there is no such page" for page in sorted(set(listed) - pages)),
    ]


def menu() -> list[str]:
    """Every page that mkdocs.yml lists, in its order."""
    found: list[str] = []

    def walk(entry: Any) -> None:
        if isinstance(entry, str):
            found.append(entry)
            return
        for each in entry.values() if isinstance(entry, dict) else entry:
            walk(each)

    walk(settings()["nav"])
    return found


def settings() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text())
    return found


def generate() -> list[str]:
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    environ = os.environ | {"NO_COLOR": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    said = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout + ran.stderr).strip()
    if ran.returncode or "No issues found" not in said:
        return ["the generator found problems:\n" + said.partition("Traceback")[0]]
    return []


def requests_to_others() -> list[str]:
    files = [file for file in SITE.rglob("*") if file.suffix in (".html", ".css")]
    return [
        f"{file.relative_to(SITE)} asks another host: {found[0][:120]}"
        for file in files
        for found in _OTHER_HOST.finditer(file.read_text())
    ]


def write_for_models() -> None:
    """llms.txt as llmstxt.org describes it, and every page in one file."""
    told = settings()
    head = f"# {told['site_name']}\n\n> {told['site_description']}\n"
    lines: list[str] = []
    texts: list[str] = []
    for entry in told["nav"]:
        [(title, below)] = entry.items()
        lines += [f"\n## {title}\n"]
        for page in _pages(below):
            text = (SOURCE / page).read_text()
            heading = re.search(r"^# (.+)$", text, re.MULTILINE)
            name = heading[1] if heading else page
            lines.append(f"- [{name}]({page.removesuffix('.md')}.html): {first_sentence(text)}")
            texts.append(text)
    (SITE / "llms.txt").write_text(head + "\n".join(lines) + "\n")
    (SITE / "llms-full.txt").write_text(head + "\n" + "\n\n".join(texts))


def _pages(below: Any) -> list[str]:
    if isinstance(below, str):
        return [below]
    return [page for each in (below.values() if isinstance(below, dict) else below) for page in _pages(each)]


def first_sentence(text: str) -> str:
    """Of the first paragraph that is prose."""
    for part in re.split(r"\n\s*\n", _FENCE.sub("", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))):
        plain = "" if part.startswith("    ") else " ".join(part.split())
        if plain and not plain.startswith(("#", "|", "- ", "* ", ">", "!", ":::", "<")):
            plain = _LINK.sub(lambda found: found[2], plain)
            return re.split(r"(?<=\.) (?=[A-Z`*])", plain)[0]
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
