"""Wall-clock time as text: UTC, ISO 8601, milliseconds, `Z`.

The last text is kept: the records of one quick call fall into one millisecond, and formatting costs more than the rest
of a record.
"""

from __future__ import annotations

from time import gmtime, strftime, time

_kept: tuple[int, str] = (-1, "")


def iso(moment: float) -> str:
    global _kept
    millis = int(moment * 1000)
    kept = _kept  # one read: another thread may replace the pair at any time
    if kept[0] == millis:
        return kept[1]
    second, rest = divmod(millis, 1000)
    if kept[0] // 1000 == second:
        text = f"{kept[1][:20]}{rest:03d}Z"
    else:
        text = strftime("%Y-%m-%dT%H:%M:%S.", gmtime(second)) + f"{rest:03d}Z"
    _kept = (millis, text)
    return text


def iso_now() -> str:
    return iso(time())
