"""What reads a PDF: its text by pages, and some of its pages as pictures. Runs inside walls, and only there.

Its text is handed to a bare interpreter (`-I -S -c`) with one argument, a JSON object: `packages`, the directory of
pypdfium2; `offset` and `limit`, the lines that somebody asked for; `pictures`, how many pages are drawn at most;
`side`, the longer side of a picture in pixels. Standard input is the PDF. It prints one JSON object: `pages`, `text`
(before each page a line `[page N]`), `cut` (there is more text), `pictures` ([page, PNG in base64]), or `problem`.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from typing import Any

LONGEST_TEXT = 4 << 20
MOST_PAGES = 5_000


def main(order: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, order["packages"])
    import pypdfium2  # type: ignore[import-not-found, import-untyped, unused-ignore]  # shown in these walls

    try:
        document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    except pypdfium2.PdfiumError as error:
        return {"problem": "it needs a password" if "assword" in str(error) else "it is damaged"}
    texts: list[str] = []
    size = 0
    for number in range(min(len(document), MOST_PAGES)):
        texts.append(f"[page {number + 1}]\n{page_text(document[number])}")
        size += len(texts[-1])
        if size > LONGEST_TEXT:
            break
    wanted = pages_of_lines(texts, order["offset"], order["limit"])[: order["pictures"]]
    return {
        "pages": len(document),
        "text": "".join(texts),
        "cut": len(texts) < len(document),
        "pictures": [[number + 1, picture(document[number], order["side"])] for number in wanted],
    }


def page_text(page: Any) -> str:
    """Every line ends, and there is no other sign of a new page."""
    lines = page.get_textpage().get_text_bounded().replace("\0", "").replace("\f", "\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def pages_of_lines(texts: list[str], offset: int, limit: int) -> list[int]:
    """The pages that have one of these lines; a negative offset counts from the end."""
    counts = [text.count("\n") for text in texts]
    first = offset if offset > 0 else max(1, sum(counts) + 1 + offset)
    found, before = [], 0
    for number, count in enumerate(counts):
        if before + count >= first and before < first + limit - 1:
            found.append(number)
        before += count
    return found


def picture(page: Any, side: int) -> str:
    """Returns a PNG with three colours of eight bits each, in base64."""
    drawn = page.render(scale=side / max(page.get_width(), page.get_height(), 1), rev_byteorder=True)
    width, height, stride, channels = drawn.width, drawn.height, drawn.stride, drawn.n_channels
    raw = bytes(drawn.buffer)
    rows = []
    for at in range(height):
        row = raw[at * stride : at * stride + width * channels]
        colours = [row[of::channels] for of in (range(3) if channels >= 3 else (0, 0, 0))]
        line = bytearray(width * 3)
        for of, colour in enumerate(colours):
            line[of::3] = colour
        rows.append(b"\0" + line)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    written = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + written).decode()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
