"""Results of calls as one text, for a model without native calling.

Content is escaped, so no output can close its element or look like another result; the ids are random.
"""

from __future__ import annotations

from golem_forge.workers.messages import CallResult, ResultsMessage


def results_text(message: ResultsMessage) -> str:
    parts = [_element(result) for result in message.results]
    return "\n".join((*parts, message.note) if message.note else parts)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _element(result: CallResult) -> str:
    return f'<tool_result id="{escaped(result.id)}" status="{result.status.value}">{escaped(result.text)}</tool_result>'
