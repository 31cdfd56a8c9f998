"""Screenshots of a real session on the page, in Chromium: a card with its diff, the tree of workers, the replay.

`photograph(browser, link, shop)` does what a person would do there and gives each picture, light and dark, as PNG,
with the text that stands on it.
`running(command, shop)` runs `forge run --ui web` and gives its link. Durations and moments differ from run to run, so
each is shown as the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pictures.shop import ASKED, MENDED, SENT, Shop

if TYPE_CHECKING:
    from playwright.async_api import Browser, ViewportSize

WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
PATIENCE: Final = 40.0
"""Seconds until something counts as not happening."""
SCHEMES: Final = ("light", "dark")

_LINK: Final = re.compile(r"http://127\.0\.0\.1:\d+/\S+")
_ARGUMENTS: Final = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none")
_TO_THE_TOP: Final = "node => { node.style.scrollMarginTop = '16px'; node.scrollIntoView({block: 'start'}); }"
_STEADY: Final = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    const steady = text.data
      .replace(/\\b\\d+ ms\\b|\\b\\d+\\.\\d+ s\\b/g, "20 ms")
      .replace(/\\b\\d{1,2}:\\d\\d [AP]M\\b/g, "10:30 AM")
      .replace(/^\\d+:\\d\\d \\/ \\d+:\\d\\d$/, "0:04 / 0:06");
    if (steady !== text.data) text.data = steady;
  }
}"""


class Photograph(NamedTuple):
    png: bytes
    text: str


@contextlib.contextmanager
def running(command: Sequence[str], shop: Shop, start: Callable[..., Any] = subprocess.Popen) -> Iterator[str]:
    """`command`: how `forge` is started. The session ends with the block."""
    words = [*command, "run", "--ui", "web", "--model", "scripted:model.yaml"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if start is subprocess.Popen else {}
    process = start(words, cwd=shop.project, env={**shop.environ, "BROWSER": "true"}, **pipes)
    try:
        yield _printed_link(process)
    finally:
        process.kill()
        process.wait()


def _printed_link(process: Any) -> str:
    said = ""
    for line in process.stdout:
        said += line
        if found := _LINK.search(line):
            return found[0]
    raise RuntimeError(f"forge printed no link:\n{said}")


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    path = next((found for name in names if (found := shutil.which(name))), "")
    if not path:
        raise RuntimeError("this machine has no chromium: install it, or run `make test` once, which does")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        await browser.close()


async def photograph(
    browser: Browser, link: str, shop: Shop, schemes: Sequence[str] = SCHEMES
) -> dict[str, Photograph]:
    """`page-card-light` and so on → the picture. Raises playwright's TimeoutError, which names what did not come."""
    found: dict[str, Photograph] = {}
    message = re.compile("message", re.I)
    page = await browser.new_page(viewport=WIDE, locale="en", timezone_id="UTC", color_scheme="light")
    page.set_default_timeout(PATIENCE * 1000)

    async def shoot(name: str) -> None:
        for scheme in schemes:
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
            await page.wait_for_timeout(100)
            await page.evaluate(_STEADY)
            png = await page.screenshot(animations="disabled", caret="hide")
            found[f"page-{name}-{scheme}"] = Photograph(png, await page.inner_text("body"))

    try:
        await page.goto(link)
        box = page.get_by_role("combobox", name=message).or_(page.get_by_role("textbox", name=message))
        await box.fill(ASKED)
        await box.press("Enter")
        approve = page.get_by_role("button", name="Approve once", exact=True)
        await approve.wait_for()
        await page.locator("button:not([aria-disabled=true])", has_text="Approve once").wait_for()
        await shoot("card")
        await approve.click()
        await page.get_by_text(MENDED).first.wait_for()
        await page.get_by_text("13 of 40").wait_for()  # requests: what the session used is told a moment later
        await page.get_by_text(f"{SENT} (scripted").evaluate(_TO_THE_TOP)
        await shoot("workers")
        [journal] = (shop.project.parent / ".forge" / "sessions").glob("*.jsonl")
        await page.goto(f"{link.partition('#')[0]}#/s/{journal.stem}/replay")
        await page.get_by_label("Speed").wait_for()
        await page.locator(".mark-question").wait_for()  # the moments are known
        async with asyncio.timeout(PATIENCE):
            while not await page.get_by_text("wants to change files").is_visible():
                await page.get_by_role("button", name="To the next moment").click()
                await page.wait_for_timeout(100)
        await shoot("replay")
    finally:
        await page.close()
    return found
