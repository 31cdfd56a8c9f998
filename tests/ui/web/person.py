"""What a person does on the page, by what they can read or hear there: names of buttons, fields and headings.

Nothing here knows a class or an id of the page. Every wait has a limit (bench.PATIENCE).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.ui.web.bench import Window, until

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator

APPROVE = "Approve once"
DENY = "Deny"
REMEMBER = "Approve and remember…"
EDITED = "Approve with these arguments"
_NO = re.compile("^(Deny|Do not trust)$")
_OPEN = re.compile(f"^(Deny|Do not trust|Send denial|{EDITED})$")

_WATCH = """(button) => {
  window.isTaken = false;
  const look = () => {
    const card = button.closest("article");
    const waits = card?.dataset.state === "open" && !card.innerText.includes("sending…") && button.checkVisibility();
    const opened = button.getAttribute("aria-expanded") === "true";
    window.isTaken = opened || !waits || card.dataset.ready === "true";
  };
  window.addEventListener("click", look, { once: true });
}"""
"""A press that comes too early (page/cards/guard.js) leaves the button where it is and its card not ready. One that
opens a menu moves what is below, and the card is not ready for that."""


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
        """By the pointer; of several such buttons the first. A choice to remember stands in the menu of the card."""
        if isinstance(name, re.Pattern) and not await self.card.get_by_role("button", name=name).count():
            await self._click(REMEMBER)
        await self._click(name)

    async def press_focused(self, name: str | re.Pattern[str]) -> None:
        """Enter on what has the focus."""
        await self._press(self.button(name).filter(visible=True).first, lambda _: self.window.press("Enter"))

    async def edit(self) -> None:
        """Opens the form of the card."""
        await self._click(re.compile("^Edit"))
        await self.button(EDITED).wait_for()

    async def _click(self, name: str | re.Pattern[str]) -> None:
        button = self.card.get_by_role("button", name=name, exact=isinstance(name, str)).first
        await self._press(button, lambda handle: handle.click())

    async def _press(self, button: Locator, press: Callable[[ElementHandle], Awaitable[None]]) -> None:
        """Until the page has taken it: what has just moved takes no press, so a person presses again."""
        taken = False
        while not taken:
            await self.is_ready(button)
            handle = await button.element_handle()
            await handle.evaluate(_WATCH)
            await press(handle)
            taken = await self.window.run("() => window.isTaken")

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
