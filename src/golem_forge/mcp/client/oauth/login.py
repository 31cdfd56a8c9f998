"""OAuth: logging in to a server once, and using that silently from then on. `forge mcp login` and `logout` are here.

`provider` gives what an HTTP transport takes as `auth`: it sends the stored token and refreshes it; it never opens a
browser and never asks. Where there is no usable token the server's 401 stands, which the transport reports as
`needs_login`. Tokens are in no event, no log and no card; a Redactor that is handed in knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from golem_forge.config.home import ForgeHome
from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.asking.foreign_text import shown

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor
    from golem_forge.mcp import sdk

LOGIN_SECONDS: Final = 300.0
_REQUEST_SECONDS: Final = 30.0
_MOST_WORDS: Final = 300


def provider(spec: ServerSpec, home: ForgeHome, *, url: str = "", redactor: Redactor | None = None) -> sdk.httpx2.Auth:
    """`url`: the server's address with its variables put in, where it has any."""
    from golem_forge.mcp.client.oauth.flow import SilentLogin
    from golem_forge.mcp.client.oauth.vault import Vault

    return SilentLogin(url or spec.url, Vault(home), redactor)


async def login(
    spec: ServerSpec,
    home: ForgeHome,
    *,
    show_url: Callable[[str], object],
    url: str = "",
    seconds: float = LOGIN_SECONDS,
    metadata_url: str | None = None,
) -> None:
    """Shows the person the page to open and waits for what their browser brings back. Raises ForgeError.

    `metadata_url`: a published document that describes this client, for servers that take one instead of registering.
    """
    import asyncio

    from golem_forge.mcp import sdk
    from golem_forge.mcp.client.oauth.callback import CallbackListener
    from golem_forge.mcp.client.oauth.flow import AskingLogin
    from golem_forge.mcp.client.oauth.vault import Vault

    if not (url or spec.url):
        raise ForgeError(f"{spec.name} is started as a program; only servers with a url have a login", code="NO_LOGIN")
    asking = AskingLogin(url or spec.url, Vault(home), show_url, metadata_url)
    try:
        async with asyncio.timeout(seconds), CallbackListener(await asking.wanted_port()) as listener:
            asking.listen_with(listener)
            async with sdk.httpx2.AsyncClient(auth=asking, timeout=_REQUEST_SECONDS, follow_redirects=False) as client:
                status = await _knock(client, asking.server_url)
    except TimeoutError:
        raise ForgeError(f"nobody finished the login within {seconds:g} seconds", code="LOGIN_TIMEOUT") from None
    except (sdk.OAuthFlowError, sdk.ValidationError) as error:
        raise ForgeError(f"the login failed: {_cause(error)}", code="LOGIN_FAILED") from None
    except sdk.httpx2.HTTPError as error:
        raise ForgeError(f"{spec.name} cannot be reached ({type(error).__name__})", code="UNREACHABLE") from None
    if not asking.finished:
        raise ForgeError(f"{spec.name} did not ask for a login (it answered {status})", code="NO_LOGIN")
    if status in (401, 403):
        raise ForgeError(f"{spec.name} does not take the token it was given ({status})", code="LOGIN_REFUSED")


async def logout(spec: ServerSpec, home: ForgeHome, *, url: str = "") -> bool:
    """Forgets tokens and client registration. False: there were none."""
    from golem_forge.mcp.client.oauth.vault import Vault, resource_of
    from golem_forge.tools.threads import run_in_thread

    return await run_in_thread(lambda: Vault(home).remove(resource_of(url or spec.url)))


def _cause(error: Exception) -> str:
    """Threat: what authorization servers answer may hold codes and tokens; it is repeated nowhere."""
    from golem_forge.mcp import sdk

    if isinstance(error, sdk.OAuthTokenError):
        return "the authorization server gave no token"
    if isinstance(error, sdk.OAuthRegistrationError):
        return "the authorization server did not register this client"
    if isinstance(error, sdk.ValidationError):
        return "the authorization server sent something that cannot be read"
    return shown(str(error), _MOST_WORDS)


async def _knock(client: sdk.httpx2.AsyncClient, url: str) -> int:
    """A request that does nothing at any server, and that one which wants a login answers with 401. The body, which
    may be a stream without end, is not read."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"accept": "application/json, text/event-stream"}
    async with client.stream("POST", url, json=ping, headers=headers) as response:
        return response.status_code
