"""What a person does on the page, by what they can read or hear there: names of buttons, fields and headings.

Nothing here knows a class or an id of the page. Every wait has a limit (bench.PATIENCE).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import TYPE_CHECKING

from tests.ui.web.bench import PATIENCE, Window, until

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator

APPROVE = "Approve once"
DENY = "Deny"
REMEMBER = "Approve and remember…"
EDITED = "Approve with these arguments"
_NO = re.compile("^(Deny|Do not trust)$")
_OPEN = re.compile(f"^(Deny|Do not trust|Send denial|{EDITED})$")

_WAITS_NO_MORE = """() => {
  const focused = document.activeElement;
  return focused?.tagName !== "BUTTON" || focused.getAttribute("aria-disabled") === "true";
}"""

_STILL_WAITS = """(button) => {
  if (!button.checkVisibility() || button.closest("article")?.innerText.includes("sending…")) return "";
  return button.getAttribute("aria-disabled") === "true" ? "not yet" : "ready";
}"""
_TAKEN_S = 1.5
"""What moved is not ready for less than a second."""


class Person:
    def __init__(self, window: Window) -> None:
        self.window = window
        self.page = window.page

    async def enter(self, link: str) -> None:
        await self.window.open(link)
        await until(self.box.is_visible, "the page is there")

    @property
    def box(self) -> Locator:
        """Where one writes to the worker."""
        return self.page.get_by_role("combobox", name=re.compile("message", re.I)).or_(
            self.page.get_by_role("textbox", name=re.compile("message", re.I))
        )

    async def say(self, text: str) -> None:
        await self.box.fill(text)
        await self.window.press("Enter")

    def cards(self) -> Locator:
        """The approvals that wait for an answer."""
        return self.page.get_by_role("article").filter(has=self.button(_OPEN)).filter(visible=True)

    @property
    def card(self) -> Locator:
        """The oldest of them."""
        return self.cards().first

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    async def sees_card(self, *texts: str | re.Pattern[str]) -> Locator:
        """One that is there to be answered, and says all of this."""

        async def says_all() -> bool:
            if not await self.card.is_visible():
                return False
            said = " ".join((await self.card.text_content() or "").split())
            return all(text in said if isinstance(text, str) else text.search(said) for text in texts)

        await until(says_all, f"a card says {texts}")
        return self.card

    async def answer(self, name: str | re.Pattern[str] = APPROVE) -> None:
        """By the pointer, once the card takes an answer; of several such buttons the first. What has just moved takes
        no press, so a person presses again: this very button, if it is ready once more and nothing has come of it.
        A choice to remember stands in the menu of the card."""
        from playwright.async_api import Error

        if isinstance(name, re.Pattern) and not await self.card.get_by_role("button", name=name).count():
            await self._pressed(REMEMBER)
        button = await self._pressed(name)
        with contextlib.suppress(Error):  # the page went on to something else
            said, since = "", time.monotonic()
            while now := await button.evaluate(_STILL_WAITS):
                if now != said:
                    said, since = now, time.monotonic()
                elif time.monotonic() - since > _TAKEN_S:
                    if said != "ready":
                        return  # sent, or kept until the line is back
                    await button.click(timeout=PATIENCE * 1000)
                    since = time.monotonic()
                await asyncio.sleep(0.02)

    async def _pressed(self, name: str | re.Pattern[str]) -> ElementHandle:
        button = self.card.get_by_role("button", name=name, exact=isinstance(name, str)).first
        await self.is_ready(button)
        handle = await button.element_handle()
        await handle.click()
        return handle

    async def press_focused(self, name: str | re.Pattern[str]) -> None:
        """Enter on what has the focus; once more if it took nothing, because something had just moved."""
        button = self.button(name).filter(visible=True).first
        await self.is_ready(button)
        await self.window.press("Enter")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if await self.window.run(_WAITS_NO_MORE):
                return
            await asyncio.sleep(0.02)
        await self.window.press("Enter")

    async def edit(self) -> None:
        """Opens the form of the card; what has just moved takes no press, so a person presses again."""
        await self._pressed(re.compile("^Edit"))
        try:
            await until(self.button(EDITED).is_visible, "the form is open", 5)
        except AssertionError:
            await self._pressed(re.compile("^Edit"))
            await self.button(EDITED).wait_for()

    async def ready_button(self, name: str) -> ElementHandle:
        """This very button of this very card, whatever comes after it."""
        button = self.card.get_by_role("button", name=name, exact=True)
        await self.is_ready(button)
        return await button.element_handle()

    async def is_ready(self, button: Locator | None = None) -> None:
        """A card that has just come takes no answer: what was pressed then was meant for something else."""
        pressed = button or self.card.get_by_role("button", name=_NO)

        async def is_ready() -> bool:
            return await pressed.get_attribute("aria-disabled") != "true"

        await until(is_ready, "the card takes an answer")

    async def go_to(self, area: str) -> None:
        """One of the page's areas: Chat, Tools, Sessions, Settings."""
        await self.page.get_by_role("navigation").get_by_role("link", name=re.compile(area, re.I)).first.click()
