"""The pictures of the README and the docs can still be drawn, and show what Forge shows today."""

from __future__ import annotations

import importlib
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.ui.web.bench import browsing

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
SHOWN = re.compile(r"(?:\]\(|src=\"|srcset=\")((?:\.\./|docs/)*pictures/[\w.-]+)")
AGAIN = "the picture differs from what Forge shows: run `make pictures`, look at it, and keep it"


@pytest.fixture(scope="module")
def drawing() -> Iterator[ModuleType]:
    """scripts/draw_pictures.py."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module("draw_pictures")
    sys.path.remove(str(ROOT / "scripts"))


def _texts(svg: Path) -> list[str]:
    return [one.text or "" for one in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_path_has_the_steps_of_its_page_and_the_plot_the_figures_of_the_record(
    drawing: ModuleType, tmp_path: Path
) -> None:
    for file in drawing.draw_diagrams(tmp_path, tmp_path):
        assert file.read_text() == (PICTURES / file.name).read_text(), AGAIN
    page = (ROOT / "docs" / "concepts" / "path.md").read_text()
    told = [
        (step, tuple(re.findall("`(.+?)`", ends)))
        for step, ends in re.findall(r"^\| (\w+) \|.*\| ([^|]*)\|$", page, re.MULTILINE)
        if step != "step"
    ]
    assert [(step.name, step.ends) for step in drawing.diagrams.STEPS] == told


def test_a_record_without_a_row_of_the_plot_is_refused(drawing: ModuleType) -> None:
    record = json.loads(drawing.RECORD.read_text())
    record["rows"] = [row for row in record["rows"] if not row["name"].startswith("forge to its prompt")]
    with pytest.raises(ValueError, match=r"no row 'forge to its prompt.*--record"):
        drawing.diagrams.plot(record)


def test_the_terminal_shows_what_the_picture_shows(drawing: ModuleType, tmp_path: Path, ready_forge: Any) -> None:
    shop = drawing.set_up(tmp_path, workers=False)
    frames = drawing.terminal.play(shop, ["forge"], ready_forge.on_a_terminal)
    for file in drawing.keep_terminal(frames, tmp_path):
        assert _texts(file) == _texts(PICTURES / file.name), AGAIN


@browsing
@pytest.mark.long
async def test_the_page_gives_every_photograph(
    drawing: ModuleType, tmp_path: Path, ready_forge: Any, browser: Any
) -> None:
    shop = drawing.set_up(tmp_path, workers=True)
    trusted = ready_forge("trust", "--yes", cwd=shop.project, env=shop.environ)
    assert trusted.returncode == 0, trusted.stderr
    with drawing.page.running(["forge"], shop, ready_forge.start) as link:
        found = await drawing.page.photograph(browser, link, shop, ["light"])
    files = drawing.keep_page(found, tmp_path)
    assert {file.name for file in files} == {file.name for file in PICTURES.glob("page-*-light.png")}
    assert "risk medium" in found["page-card-light"].text and "/shop/cart.py" in found["page-card-light"].text


def test_what_belongs_to_this_machine_gets_into_no_picture(drawing: ModuleType, tmp_path: Path) -> None:
    assert drawing.of_this_machine(f"a file in {ROOT}/src") == str(ROOT)
    with pytest.raises(drawing.NotDrawn, match="belongs to this machine"):
        drawing.keep_page({"page": drawing.page.Photograph(b"png", f"{Path.home()}/x")}, tmp_path)
    assert [file.name for file in PICTURES.glob("*.svg") if drawing.of_this_machine(file.read_text())] == []


def test_every_picture_is_shown_somewhere_with_words_and_they_stay_small() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown: set[str] = set()
    for page in pages:
        text = page.read_text()
        shown |= {Path(target).name for target in SHOWN.findall(text)}
        assert not re.search(r"!\[\]\(|alt=\"\"|<img(?![^>]*\balt=)", text), f"{page} shows a picture without words"
    kept = {file.name: file.stat().st_size for file in PICTURES.iterdir()}
    assert shown == set(kept)
    assert max(kept.values()) < 150_000
    assert sum(kept.values()) < 1_500_000
