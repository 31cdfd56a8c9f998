"""Files for an input to come: sent first, each by itself, then named by the `userInput` that they belong to."""

from __future__ import annotations

from typing import Final

from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, Operation, operation
from golem_forge.ui.web.wire import Model, Refused

_MOST_NAME: Final = 255


class AttachmentQuery(Model, title="AttachmentQuery"):
    name: str
    """What the file is called; its last component counts."""


class KeptAttachment(Model, title="KeptAttachment"):
    digest: str
    name: str
    size: int


@operation(
    "POST",
    "/api/sessions/{id}/attachments",
    "attach",
    tag="actions",
    query=AttachmentQuery,
    raw_body="application/octet-stream",
    answer=KeptAttachment,
    status=201,
    refusals={409: "the session does not run here", 413: "more bytes than the worker takes", 422: "not taken by name"},
)
async def attach(call: Call) -> KeptAttachment:
    """Keeps a file for an input that names it as `{"digest", "name"}` among its `attachments`."""
    runtime = call.house.live(call.path["id"]).runtime
    if runtime is None or not runtime.is_ready:
        raise Refused(409, "This session takes no attachments yet.")
    name = call.query.name.strip()
    if not name or len(name) > _MOST_NAME or "\0" in name:
        raise Refused(422, "The name of the file cannot be used.", {"name": "1 to 255 characters"})
    most = runtime.worker.attachment_policy.max_total_bytes
    data = bytearray()
    async for piece in call.request.stream():
        data += piece
        if len(data) > most:
            raise Refused(413, f"This worker takes at most {most} bytes of attachments.")
    kept = await run_in_thread(lambda: runtime.receive(name, bytes(data)))
    return KeptAttachment(digest=kept.digest, name=kept.name, size=kept.size)


OPERATIONS: Final[tuple[Operation, ...]] = (attach,)
