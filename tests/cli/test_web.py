"""`forge web` on a terminal: links for whoever comes later, and its end."""

from __future__ import annotations

import re
from collections.abc import Callable

LINK = r"#code=(\S{20,})\s"


def test_enter_prints_another_link_and_ctrl_c_ends_it(on_terminal: Callable[..., tuple[int, str]]) -> None:
    code, screen = on_terminal(["web", "--no-open"], (f"{LINK}+Enter prints another link", ""), (LINK, "\x03"))
    assert code == 0, screen
    links = re.findall(LINK, screen)
    assert len(set(links)) == len(links) >= 2, "each lets in once, so each is another one"
