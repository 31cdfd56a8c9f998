"""Coming in and going out: the code of the printed link for a cookie, once; and what this server is, for the page.

Takes the code that stood behind the `#` of the link. Refuses (401) one that was used, is too old or was never given,
without saying which. Threat: whoever guesses; codes are random, and the door counts the tries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.wire import Model, Refused

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import Response

_LONGEST_CODE: Final = 200
_NO: Final = "This link is not good any more: it was used, or it is older than five minutes."
_REFUSALS: Final = {401: "the code is not good (any more)", 429: "too many wrong codes within a minute"}


class Code(Model, title="Code"):
    code: str = Field(max_length=_LONGEST_CODE)


class Me(Model, title="Me"):
    """What the page needs to know before it shows anything."""

    current: str
    """The session to show first; empty: none runs here."""
    may_start: bool
    directory: str
    """Where sessions start unless told otherwise."""
    notify: bool
    version: str


@operation("POST", "/api/login", "log_in", body=Code, tag="login", refusals=_REFUSALS)
async def log_in(call: Call) -> Response:
    """Exchanges the code of the printed link for a cookie that lasts 12 hours. The code is good once, for 5 minutes."""
    from golem_forge.ui.web.sdk import Response

    cookie = call.request.app.state.login.exchange(call.body.code)
    if cookie is None:
        raise Refused(401, _NO)
    answer = Response(status_code=204)
    call.request.app.state.login.set_cookie(call.request, answer, cookie)
    return answer


@operation("POST", "/api/logout", "log_out", tag="login")
async def log_out(call: Call) -> Response:
    """Forgets this browser: its cookie is worth nothing from now on."""
    from golem_forge.ui.web.sdk import Response

    answer = Response(status_code=204)
    call.request.app.state.login.drop_cookie(call.request, answer)
    return answer


@operation("GET", "/api/me", "who_am_i", answer=Me, tag="login")
async def who_am_i(call: Call) -> Me:
    """What this server shows, and whether it may start sessions."""
    from golem_forge import __version__

    house = call.house
    return Me(
        current=house.current,
        may_start=house.may_start,
        directory=str(house.directory),
        notify=house.notify,
        version=__version__,
    )
