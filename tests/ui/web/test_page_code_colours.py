"""The colours of highlighted code can be read, in light and dark, and fit the classes that the server writes."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import golem_forge.ui.web

CSS = Path(golem_forge.ui.web.__file__).parent / "page" / "css"
PAIR = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")


def colours(name: str) -> dict[str, tuple[str, str]]:
    return {found[1]: (found[2], found[3]) for found in PAIR.finditer((CSS / name).read_text())}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_every_colour_of_code_can_be_read_on_every_ground() -> None:
    grounds, code = colours("tokens.css"), colours("code.css")
    assert len(code) >= 6
    for (name, pair), ground, theme in product(code.items(), ("code-bg", "surface", "bg"), (0, 1)):
        assert contrast(pair[theme], grounds[ground][theme]) >= 4.5, (name, ground, theme)


def test_the_classes_are_those_of_the_highlighter() -> None:
    from pygments.token import STANDARD_TYPES

    styled = set(re.findall(r"\.([a-z][a-z0-9]{0,2})\b", (CSS / "code.css").read_text()))
    assert styled <= set(STANDARD_TYPES.values())
    assert {"k", "s1", "s2", "mi", "nf", "nc", "c1", "nt", "gd", "gi"} <= styled
