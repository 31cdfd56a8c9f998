"""A person at a browser: one real Chromium a process, its windows, what they asked for and what they complained about.

`windows` makes them: `window = await windows()`, `await window.open(url)`. When the test is over each has to be clean:
no error in the console, no exception, nothing that the content security policy had to stop, no request to anyone but
the server it was opened on. What a test provokes on purpose it names: `window.expects("401")`.
`await windows.with_modules()` is one that has the page's modules and no server: `await window.run("import(…)…")`;
`functions` is such a one that is there already.

All of it runs on the loop of the whole run, because the browser outlives a test. A module with such tests says

    from tests.ui.web.bench import browsing
    pytestmark = browsing

A machine without Chromium skips them by name (docs/dependencies.md); with CI=true `make test` has failed before.
`tests/conftest.py` names this module as a plugin, so the fixtures are there for every test.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.deadlines import PATIENCE

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "src" / "golem_forge" / "ui" / "web" / "page"
PICTURES: Final = ROOT / "build" / "screenshots"
WIDE: Final = (1280, 800)
NARROW: Final = (320, 640)

browsing = pytest.mark.asyncio(loop_scope="session")

_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--in-process-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    # Nobody is reached by name. Every name under `.test` is this machine: that is how another page's name gets there.
    "--host-resolver-rules=MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    # The list below its address bar is a page of its own for every window, and took ten times what ours takes. The
    # others are playwright's own, which a second list would replace.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,"
    "OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch",
    # A process for every opening, and one for the network alone, took 7 % of what a test takes. Pages of two sites, and
    # windows with cookies of their own, are apart all the same. The other two features are playwright's own.
    "--process-per-site",
    "--enable-features=NetworkServiceInProcess2,CDPScreenshotNewSurface,SkipListAccountsWithoutGaiaCookies",
)
_STRICT: Final = (
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_EMPTY: Final = (
    '<!doctype html><html lang="en"><head><title>-</title><link rel="icon" href="data:,">'
    '<link rel="stylesheet" href="/all.css"></head><body><main></main></body></html>'
)
_NO_TIME_PASSES: Final = """() => {
  window.clock ??= performance.now.bind(performance);
  const now = window.clock();
  performance.now = () => now;
}"""
_TIME_PASSES: Final = "() => { performance.now = window.clock; }"
_WCAG: Final = {"wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"}
_GRAVE: Final = {"serious", "critical"}
_NOT_SENT: Final = ("data:", "blob:", "about:")


def chromium_path() -> str:
    """The one without windows first: it takes a fifth less of the processor."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    return next((found for name in names if (found := shutil.which(name))), "")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Started when the first test asks for it."""
    if not (path := chromium_path()):
        pytest.skip("this machine has no chromium: see build/missing-parts")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield chromium
        await chromium.close()


_LEFT_EARLY = (
    "WebSocket is closed before the connection is established",
    r"40[49] \([A-Za-z ]+\).*/(?:settings|ports)",
)
"""What Chromium says when a page is left while it connects, or a session ends while its page asks how it runs: both
happen on a busy machine."""


@dataclass(slots=True)
class Window:
    """One tab. `page` is playwright's, for whatever has no word here."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Every address that was asked for, sockets included."""
    host: str = ""
    _expected: list[str] = field(default_factory=list)
    _size: Any = None

    def __post_init__(self) -> None:
        self._size = self.page.viewport_size

        def heard(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.complaints.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

        self.page.on("console", heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("crash", lambda _: self.complaints.append("the page crashed"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("websocket", lambda socket: self.asked.append(socket.url))

    async def open(self, url: str) -> None:
        self.host = self.host or urlsplit(url).netloc
        await self.page.goto(url, wait_until="domcontentloaded", timeout=PATIENCE * 1000)

    def expects(self, *patterns: str) -> None:
        """Complaints that the test provokes."""
        self._expected += patterns

    def check_clean(self) -> None:
        known = [re.compile(pattern) for pattern in (*self._expected, *_LEFT_EARLY)]
        odd = [said for said in self.complaints if not any(pattern.search(said) for pattern in known)]
        assert odd == [], f"the page complained: {odd}"
        left = [url for url in self.asked if urlsplit(url).netloc != self.host and not url.startswith(_NOT_SENT)]
        assert left == [], f"a request left the host {self.host}: {left}"

    # ---- seeing

    async def sees(self, text: str | re.Pattern[str]) -> None:
        """Until somebody can read it on the page."""
        await until(lambda: self._is_read(text), f"{text!r} is on the page")

    async def sees_not(self, text: str | re.Pattern[str]) -> None:
        async def is_gone() -> bool:
            return not await self._is_read(text)

        await until(is_gone, f"{text!r} is gone from the page")

    async def _is_read(self, text: str | re.Pattern[str]) -> bool:
        return await self.page.get_by_text(text).filter(visible=True).first.is_visible()

    async def heard(self, level: str = "assertive") -> str:
        """All that a screen reader was told since the page was opened."""
        return "\n".join(await self.run("level => window.heard[level]", level))

    async def text(self) -> str:
        """What can be read on the page now."""
        return await self.page.inner_text("body")

    async def picture(self, name: str, *, always: bool = False) -> None:
        """Kept as `build/screenshots/NAME.png`, if FORGE_PICTURES is set."""
        if always or os.environ.get("FORGE_PICTURES"):
            PICTURES.mkdir(parents=True, exist_ok=True)
            await self.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")

    async def accessible(self, *, colours: bool = True) -> list[str]:
        """What axe-core finds against WCAG 2.2 A and AA, or finds grave; each as one line. To look at the colours takes
        longer than all the rest."""
        return await self._axe({} if colours else {"rules": {"color-contrast": {"enabled": False}}})

    async def readable(self) -> list[str]:
        """The same of its colours alone: the only thing that differs between two themes."""
        return await self._axe({"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}})

    async def _axe(self, options: dict[str, Any]) -> list[str]:
        from axe_playwright_python.base import AXE_SCRIPT

        if not await self.run("() => 'axe' in window"):
            await self.run(AXE_SCRIPT)
        asked = {"resultTypes": ["violations"], **options}
        found = await self.run("asked => axe.run(asked).then(r => r.violations)", asked)
        return [
            f"{each['id']} ({each['impact']}): {node['target']} {node['html'][:120]} {_said(node)}"
            for each in found
            if _WCAG & set(each["tags"]) or each["impact"] in _GRAVE
            for node in each["nodes"]
        ]

    async def overflows(self) -> bool:
        """Whether the page has to be scrolled sideways."""
        return bool(await self.run("() => document.scrollingElement.scrollWidth > innerWidth + 1"))

    # ---- doing

    @contextlib.asynccontextmanager
    async def at_once(self) -> AsyncIterator[None]:
        """The page's clock stands still: one thing follows the other however slow the machine is."""
        await self.run(_NO_TIME_PASSES)
        yield
        await self.run(_TIME_PASSES)

    async def press(self, *keys: str) -> None:
        for key in keys:
            async with asyncio.timeout(PATIENCE):
                await self.page.keyboard.press(key)

    async def type(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.page.keyboard.type(text)

    async def tab_to(self, name: str | re.Pattern[str], most: int = 80) -> None:
        """By the Tab key alone until what is focused has this name."""
        for _ in range(most):
            await self.press("Tab")
            if _fits(await self.focused(), name):
                return
        raise AssertionError(f"{most} tabs did not reach {name!r}; the last was {await self.focused()!r}")

    async def focused(self) -> str:
        """The name that a screen reader would say of what has the focus."""
        return str(await self.run(_FOCUSED))

    async def run(self, script: str, given: Any = None) -> Any:
        """`await window.run("async (text) => (await import('/visible.js')).visible(text)", "a")`"""
        async with asyncio.timeout(PATIENCE):  # playwright itself would wait for a busy page for ever
            return await self.page.evaluate(script, given)

    async def close(self) -> None:
        await self.page.close()

    async def empty(self) -> bool:
        """Takes everything of this test out of it. False: that cannot be done."""
        from playwright.async_api import Error

        context = self.page.context
        try:
            for page in context.pages[1:]:
                await page.close()
            await self.run("() => { localStorage.clear(); sessionStorage.clear(); }")
            await self.page.goto("about:blank")
            await self.page.mouse.move(0, 0)
            if self.page.viewport_size != self._size:
                await self.page.set_viewport_size(self._size)
            await context.clear_cookies()
        except Error:
            return False
        self.host = ""
        for said in (self.complaints, self.asked, self._expected):
            said.clear()
        return True


def _fits(said: str, name: str | re.Pattern[str]) -> bool:
    return said == name if isinstance(name, str) else bool(name.search(said))


def _said(node: dict[str, Any]) -> str:
    return "; ".join(one["message"] for kind in ("any", "all", "none") for one in node[kind])[:200]


_FOCUSED: Final = """() => {
  const node = document.activeElement;
  if (!node || node === document.body) return "";
  const named = (node.getAttribute("aria-labelledby") || "").split(" ");
  const by = named.map(id => document.getElementById(id)?.textContent || "");
  const label = node.labels?.length ? [...node.labels].map(one => one.textContent) : [];
  const said = [node.getAttribute("aria-label"), by.join(" ").trim(), label.join(" "), node.innerText, node.title];
  return (said.find(text => text && text.trim()) || node.tagName).trim().replace(/\\s+/g, " ");
}"""


_HEARING: Final = """() => {
  window.heard = {polite: [], assertive: []};
  new MutationObserver(() => {
    for (const [level, said] of Object.entries(window.heard)) {
      const now = document.querySelector(`[aria-live=${level}]`)?.textContent?.trim();
      if (now && now !== said.at(-1)) said.push(now);
    }
  }).observe(document, {subtree: true, childList: true, characterData: true});
}"""


class Windows:
    """Those of one test. Each has cookies and storage of its own, unless it is a tab beside another. A tab costs more
    than most of what is done in it, so it may be one that an earlier test has left, with nothing in it."""

    def __init__(self, browser: Browser, modules: str, left: dict[str, list[Window]]) -> None:
        self._browser = browser
        self._modules = modules
        self._left = left
        self._alone: list[tuple[str, Window]] = []
        self.opened: list[Window] = []

    async def __call__(
        self, *, beside: Window | None = None, size: tuple[int, int] = WIDE, dark: bool = False, **options: Any
    ) -> Window:
        options |= {"viewport": {"width": size[0], "height": size[1]}, "color_scheme": "dark" if dark else "light"}
        kind = repr(sorted(options.items()))
        if beside is not None:
            window = Window(await beside.page.context.new_page(), host=beside.host)
        elif left := self._left.get(kind):
            window = left.pop()
        else:
            context = await self._browser.new_context(reduced_motion="reduce", **options)
            context.set_default_timeout(PATIENCE * 1000)
            await context.add_init_script(f"({_HEARING})()")
            window = Window(await context.new_page())
        if beside is None:
            self._alone.append((kind, window))
        self.opened.append(window)
        return window

    async def with_modules(self, **options: Any) -> Window:
        """An empty page of ours with every style sheet, on which the modules of `ui/web/page` can be imported."""
        window = await self(**options)
        await window.open(f"{self._modules}/-/")
        await window.page.wait_for_load_state("load")  # with its style sheets: sizes are measured there
        return window

    async def close(self, *, failed: bool) -> None:
        for kind, window in self._alone:
            if failed or window not in self.opened or not await window.empty():
                await window.page.context.close()
            else:
                self._left.setdefault(kind, []).append(window)

    async def look_back(self, name: str) -> None:
        """After a failure: what each window showed."""
        for number, window in enumerate(self.opened):
            if not window.page.is_closed():
                await window.picture(f"failed-{name}-{number}", always=True)


async def _give_file(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One of the page's own files, under the policy that they are served with; but it may be kept."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        asked = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        file = PAGE / asked.lstrip("/")
        status, kind, body = "404 Not Found", "text/plain", b""
        if asked == "/-/":
            status, kind, body = "200 OK", "text/html; charset=utf-8", _EMPTY.encode()
        elif asked == "/all.css":
            sheets = sorted((PAGE / "css").glob("*.css"))
            status, kind, body = "200 OK", "text/css", b"\n".join(sheet.read_bytes() for sheet in sheets)
        elif file.is_file():
            status, kind, body = "200 OK", mimetypes.guess_type(file.name)[0] or "", file.read_bytes()
        head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", _STRICT]
        head += ["Cache-Control: max-age=999", "Connection: close", "", ""]
        writer.write("\r\n".join(head).encode() + body)
        await writer.drain()
    writer.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def modules() -> AsyncIterator[str]:
    """The address of a server of the page's files alone."""
    server = await asyncio.start_server(_give_file, "127.0.0.1", 0)
    yield f"http://modules.test:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.fixture(scope="session")
def left_tabs() -> dict[str, list[Window]]:
    """Those that no test has at the moment, by their options."""
    return {}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _functions(browser: Browser, modules: str) -> Window:
    return await Windows(browser, modules, {}).with_modules(bypass_csp=True)  # some scripts are made of text


@pytest_asyncio.fixture(loop_scope="session")
async def functions(_functions: Window) -> AsyncIterator[Window]:
    """One page with the modules for all tests that call their functions and leave nothing on it: to load the modules
    takes longer than most such calls."""
    try:
        yield _functions
        _functions.check_clean()
    finally:
        _functions.complaints.clear()
        _functions.asked.clear()


@pytest_asyncio.fixture(loop_scope="session")
async def windows(
    browser: Browser, modules: str, left_tabs: dict[str, list[Window]], request: pytest.FixtureRequest
) -> AsyncIterator[Windows]:
    made = Windows(browser, modules, left_tabs)
    yield made
    failed = getattr(request.node, "web_failed", False)
    try:
        if failed:
            await made.look_back(re.sub(r"\W+", "-", request.node.name))
        else:
            for window in made.opened:
                window.check_clean()
    except AssertionError:
        failed = True
        raise
    finally:
        await made.close(failed=failed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call" and report.failed:
        item.web_failed = True  # type: ignore[attr-defined]
    return report


async def until(condition: Callable[[], Any], what: str = "it happens", within: float = PATIENCE) -> Any:
    """Polls, letting the loop run; gives the first thing that is not empty. Playwright's own waits look only twice a
    second. A look at a page takes the processor from what is waited for, so such looks become rarer."""
    end = time.monotonic() + within
    pause = 0.02
    while True:
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
            pause = min(max(1.25 * pause, 0.04), 0.2)
        if found:
            return found
        assert time.monotonic() < end, f"not within {within} s: {what}"
        await asyncio.sleep(pause)
