"""The bench itself: what a page does wrong is noticed, and nothing reaches beyond this machine."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.ui.web.bench import browsing, until

pytestmark = browsing


LOAD_FROM_ELSEWHERE = """() => {
  const script = document.createElement("script");
  script.src = "http://other.test/x";
  document.head.append(script);
}"""


async def test_what_a_page_does_wrong_is_noticed(windows: Any) -> None:
    window = await windows.with_modules()
    window.check_clean()
    await window.run("() => { setTimeout(() => { throw new Error('thrown on purpose') }) }")
    await window.run(LOAD_FROM_ELSEWHERE)
    await until(lambda: len(window.complaints) > 1 and window.asked[1:], "both are noticed")
    with pytest.raises(AssertionError, match="thrown on purpose"):
        window.check_clean()
    window.expects("thrown on purpose", "Content Security Policy")
    with pytest.raises(AssertionError, match="left the host"):
        window.check_clean()
    window.asked.clear()


async def test_axe_finds_what_is_hard_to_read(windows: Any) -> None:
    window = await windows.with_modules()
    await window.run("() => { document.querySelector('main').innerHTML = '<h1>pale</h1><input>' }")
    assert any("label" in found for found in await window.accessible())
    assert await window.readable() == []
    await window.run("() => { document.querySelector('h1').style.color = 'rgb(128 128 128 / 20%)' }")
    assert any("contrast" in found for found in await window.readable())
    with pytest.raises(AssertionError, match="did not reach"):
        await window.tab_to(re.compile("nothing"), most=2)
