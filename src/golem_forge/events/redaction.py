"""Redactor: removes known secrets, credentials (by argument name) and host paths from what is shown.

`add_secret` and `add_path` teach it; `text` and `value` redact. A secret becomes `[secret NAME]` in every spelling it
may have: as it is, JSON-escaped, URL-quoted, in hex, in base64, and line by line. The value of an argument named like a
credential (`classify_name`) becomes `[redacted N chars sha256:xxxxxxxx]`; a zone's host path becomes its virtual path.
`value` returns the same object when there was nothing to redact.

`StreamRedactor` redacts output that arrives in pieces: a secret split across two pieces is still found. `feed` gives
what can be shown now and holds back the last word, or the last line; `finish` gives the rest. `redact_start` redacts a
text that is cut.

Threat: whoever may print a guess and sees what becomes of it learns a secret letter by letter, if anything happens to
the beginning of one. So only a whole spelling ever makes a difference; what is held back, and how much of it, is the
same whatever the secrets are. That a whole guess is right can be seen: `[secret NAME]` stands there.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, quote_plus

from golem_forge.core.regex import regex
from golem_forge.core.text import leads_to_root
from golem_forge.events.serialization import encode_json

MIN_SECRET: Final = 4
MAX_SECRET: Final = 64 * 1024
MAX_SECRETS: Final = 1000
"""The first ones stay: a process may have them already. A later one is told of in the log and to the caller, who
decides whether it is handed out all the same."""
_log = logging.getLogger(__name__)
_MAX_DEPTH: Final = 100
_QUICK_DEPTH: Final = 8
"""Maximum depth of the quick test, so that a value that contains itself ends it soon."""
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_MAX_CLEAN_TEXTS: Final = 2048
_LONGEST_CLEAN_TEXT: Final = 400
_NAME: Final = regex(r"[\w.\-]*")
_NAMES: Final = regex(r"[\w.\-/\\]*")
_NAMES_IN_URL: Final = regex(r"[\w.\-%]*")
PATH_CONTEXT: Final = 300
"""Characters before a path that are looked at; more than the longest file name."""
_AFTER_PATH: Final = r"(?![\w-]|\.\w)"
"""`/srv/app` is found in `/srv/app/x` and at the end of a sentence, not in `/srv/app2` or `/srv/app.txt`."""
_SMALLEST_REACH: Final = 256
_PROMPT_ENDS: Final = ":?>$#)]"
"""A program that asks ends its output so. Whoever waits for an answer must see the question."""
_LONGEST_STYLE: Final = 32
_STYLE_AT_END: Final = regex(r"\x1b\[[0-9;?]*[A-Za-z]\Z")
"""An escape sequence at the end of a text; a prompt often ends with the return to plain colours."""
_DIVIDED: Final = regex(rf"[\s{re.escape(_PROMPT_ENDS)}](?=.)", re.DOTALL)
_MARKER = regex(r"\[(?:redacted \d+ chars sha256:[0-9a-f]{8}|secret [^\]]*)\]")


class Redactor:
    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        self._values: set[str] = set()
        """The secrets themselves; `_secrets` has their spellings."""
        self._paths: dict[str, str] = {}
        self._spellings: tuple[str, ...] = ()
        """Of secrets and paths. Looked for one by one: a regular expression of them all takes milliseconds to compile,
        again after each thing that is learned, and a session shows too few texts to earn that back."""
        self._clean: set[str] = set()
        """Short texts that were looked through: ids and names come again and again."""
        self._shortest = 0
        self._longest = 0
        self._longest_divided = 0
        self._learned = 0

    @property
    def secrets(self) -> Mapping[str, str]:
        """Every known spelling of every secret, and what it becomes."""
        return self._secrets

    @property
    def version(self) -> int:
        """Another one after each thing that was learned."""
        return self._learned

    @property
    def reach(self) -> int:
        """Number of characters that contain any known secret or path, plus the two behind a path that decide whether it
        is one. A power of two, so that it reveals little; 0 if nothing is known.
        """
        return max(_SMALLEST_REACH, 1 << (self._longest + 1).bit_length()) if self._learned else 0

    @property
    def longest_divided(self) -> int:
        """The longest spelling of a secret that a stream may show in two parts: one with white space in it."""
        return self._longest_divided

    @property
    def paths(self) -> Mapping[str, str]:
        return self._paths

    def copy(self) -> Redactor:
        """One that knows the same and learns on its own from now on: for one child's output, with its own paths."""
        made = Redactor()
        made._secrets, made._paths, made._values = dict(self._secrets), dict(self._paths), set(self._values)
        made._longest, made._longest_divided = self._longest, self._longest_divided
        if made._secrets or made._paths:
            made._learn()
        return made

    def add_secret(self, name: str, value: str) -> str | None:
        """Takes `value` out from now on. Gives the reason when it cannot."""
        if len(value.strip()) < MIN_SECRET:
            return f"{name}: shorter than {MIN_SECRET} characters, so it would be found in ordinary words"
        if len(value) > MAX_SECRET:
            return f"{name}: longer than {MAX_SECRET} characters"
        if value in self._values:
            return None
        if len(self._values) >= MAX_SECRETS:
            _log.warning("%s: not taken out of what is shown: there are %d secrets already", name, MAX_SECRETS)
            return f"{name}: more than {MAX_SECRETS} secrets"
        self._values.add(value)
        for form in secret_spellings(value) | line_spellings(value):
            self._secrets.setdefault(form, f"[secret {name}]")
            self._longest = max(self._longest, len(form))
            if len(form) > self._longest_divided and _DIVIDED.search(form):
                self._longest_divided = len(form)
        self._learn()
        return None

    def add_path(self, host: str, virtual: str) -> str | None:
        """Writes `virtual` wherever the host path turns up. Gives the reason when it cannot."""
        host = host.rstrip("/")
        if not host.startswith("/"):
            return f"{host or '/'!r}: only an absolute path below / can be rewritten"
        replacement = virtual.rstrip("/") or "/"
        for form in secret_spellings(host):
            if form.startswith(("/", "%2F", "%2f", "\\/")):
                self._paths[form] = replacement
                self._longest = max(self._longest, len(form))
        self._learn()
        return None

    def text(self, text: str) -> str:
        clean = self._clean
        if len(text) < self._shortest or not self._learned or text in clean:
            return text
        if any(form in text for form in self._spellings):
            return self.redact_paths(self.redact_secrets(text))
        if len(text) <= _LONGEST_CLEAN_TEXT:
            if len(clean) >= _MAX_CLEAN_TEXTS:
                clean.clear()
            clean.add(text)
        return text

    def secret_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns where `text` would replace a secret; a stream must not be divided there."""
        pattern = _alternatives(self._secrets, text)
        return [match.span() for match in pattern.finditer(text)] if pattern else []

    def path_spans(self, text: str) -> list[tuple[int, int]]:
        pattern = _alternatives(self._paths, text, _AFTER_PATH)
        return [match.span() for match in pattern.finditer(text)] if pattern else []

    def redact_secrets(self, text: str) -> str:
        """Replaces secrets only: content that a tool was asked for keeps its paths, or it could not be written back."""
        if not self._secrets or len(text) < self._shortest or text in self._clean:
            return text
        pattern = _alternatives(self._secrets, text)
        return text if pattern is None else pattern.sub(lambda match: self._secrets[match.group()], text)

    def without_secrets(self, value: Any) -> Any:
        """A JSON value with `redact_secrets` of each of its texts, names included; the same object if there was none.

        For what must keep its members whatever they are called, e.g. a schema with a property `password`.
        """
        said = joined_texts(value)
        if said is not None and self.redact_secrets(said) is said:
            return value
        return self._walk(value, (), self.redact_secrets, credentials=False)

    def redact_paths(self, text: str, before: str = "", after: str = "") -> str:
        """Replaces host paths only, in a text without secrets. `before` is the end of the preceding text of a stream,
        `after` the two characters that follow.
        """
        pattern = _alternatives(self._paths, text, _AFTER_PATH)
        if pattern is None:
            return text

        def virtual(match: re.Match[str]) -> str:
            start = match.start()
            if match.end() > len(text):
                return match.group()
            context = text[max(0, start - PATH_CONTEXT) : start]
            if before and start < PATH_CONTEXT:
                context = (before + context)[-PATH_CONTEXT:]
            return match.group() if _inside_path(context) else self._paths[match.group()]

        shown = pattern.sub(virtual, text + after)
        return shown[: len(shown) - len(after)]

    def value(self, value: Any) -> Any:
        """Returns the value without secrets and host paths; the same object if it held none."""
        return value if self._is_clean(value, _QUICK_DEPTH) else self._walk(value, (), self.text, credentials=True)

    def _is_clean(self, value: Any, depth: int) -> bool:
        """The quick way through for most values: plain types, plainly named, nothing to take out.

        False means only: look closer.
        """
        kind = type(value)
        if kind is str:
            return len(value) < self._shortest or not self._shortest or self.text(value) is value
        if kind in _SCALARS:
            return True
        if not depth:
            return False
        if kind is dict:
            shortest = self._shortest
            for key, item in value.items():
                if type(key) is not str or (CLASSIFIED_NAMES.get(key, 1) and classify_name(key)):
                    return False
                if shortest and len(key) >= shortest and self.text(key) is not key:
                    return False
                if type(item) not in _SCALARS and not self._is_clean(item, depth - 1):
                    return False
            return True
        if kind is list or kind is tuple:
            return all(self._is_clean(item, depth - 1) for item in value)
        return False

    def _walk(self, value: Any, above: tuple[int, ...], text: Callable[[str], str], *, credentials: bool) -> Any:
        """`above`: the containers that this value is in. `credentials`: what has the name of one is replaced."""
        if type(value) in _SCALARS:
            return value
        if isinstance(value, str):
            return text(value if type(value) is str else str(value))
        if isinstance(value, bytes):
            decoded = value.decode("utf-8", "replace")
            shown = text(decoded)
            return value if shown == decoded else shown
        if not isinstance(value, Mapping | list | tuple | set | frozenset):
            return value
        if len(above) >= _MAX_DEPTH or id(value) in above:
            return "[nested too deep]"
        above = (*above, id(value))
        if not isinstance(value, Mapping):
            items = [self._walk(item, above, text, credentials=credentials) for item in value]
            if isinstance(value, list | tuple) and all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return tuple(items) if type(value) is tuple else items
        made, same = {}, True
        for key, item in value.items():
            named = classify_name(key) if credentials and type(key) is str else NO_CREDENTIAL
            new_key = text(key) if type(key) is str else key
            if named == NO_CREDENTIAL:
                new = self._walk(item, above, text, credentials=credentials)
            else:
                new = self._credential(item, named)
            same = same and new is item and new_key is key
            made[new_key] = new
        return value if same else made

    def _credential(self, item: Any, named: int) -> Any:
        if item is None or item is True or item is False or item == "":
            return item
        if isinstance(item, str):
            shown = self.text(item)
            return shown if _MARKER.fullmatch(shown) else redaction_marker(item)
        if isinstance(item, int | float):
            # `token_count: 5` counts; `password: 1234` is one.
            return item if named == MENTIONS_CREDENTIAL else redaction_marker(str(item))
        return redaction_marker(encode_json(item).decode())

    def _learn(self) -> None:
        self._spellings = (*self._secrets, *self._paths)
        self._shortest = min(map(len, self._spellings))
        self._learned += 1
        self._clean = set()  # a new one: another thread may be about to add a text that it held against less


def redaction_marker(text: str) -> str:
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[redacted {len(text)} chars sha256:{digest[:8]}]"


def _inside_path(before: str) -> bool:
    """Whether a path that follows is the end of another: `/srv/app` in `/data/srv/app`, not in `-I/srv/app` and not in
    `/proc/self/root/srv/app`, which is the same path once more."""
    name = _NAME.match(before[::-1])
    length = name.end() if name else 0
    if not length:
        return False
    head = before[:-length]
    if head.endswith("/"):
        if head.endswith("file://"):  # there it is the name of a host
            return False
        names = _end_of(before, _NAMES).replace("\\/", "/")
        return not leads_to_root(names[names.index("/") :])
    if not (head.endswith("%") and length > 2 and before[-length:].startswith(("2F", "2f"))):
        return False
    names = _end_of(before, _NAMES_IN_URL).replace("%2f", "/").replace("%2F", "/")
    return not leads_to_root(names[names.index("/") :])


def _end_of(text: str, names: re.Pattern[str]) -> str:
    found = names.match(text[::-1])
    return text[len(text) - found.end() :] if found else ""


def _alternatives(spellings: Mapping[str, str], text: str, after: str = "") -> re.Pattern[str] | None:
    """A pattern of those that are in the text: each alternative costs at every place, and most texts have none.

    Longest first: a short secret must not be found inside a longer one and leave the rest of it standing.
    """
    found = sorted((form for form in list(spellings) if form in text), key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(map(re.escape, found))}){after}") if found else None


class StreamRedactor:
    """Holds back the last word, which ends with white space, and where a text ends like a question nothing; with
    `by_lines` the last line. Of what has no such end, one to two times the `reach` of the redactor is held back."""

    def __init__(self, redactor: Redactor, *, by_lines: bool = False) -> None:
        self._redactor = redactor
        self._by_lines = by_lines
        self._held = ""
        self._seen = ""
        """The end of what was shown, since the last secret in it: a secret of several words may go on after it."""
        self._before = ""
        """The same with its paths as they came and without secrets: it decides whether a path begins after it."""

    def feed(self, chunk: str) -> str:
        text = self._held + chunk
        cut = self._held_from(text)
        self._held = text[cut:]
        return self._shown(text[:cut]) if cut else ""

    def finish(self) -> str:
        text, self._held = self._held, ""
        return self._shown(text)

    def _held_from(self, text: str) -> int:
        """Returns where the part begins that has to wait for more text. It may not depend on the beginning of a secret:
        see above.
        """
        redactor = self._redactor
        reach = redactor.reach
        cut = self._last_end(text) if reach else len(text)
        if len(text) - cut > 2 * reach:
            cut = len(text) - reach
        if not cut:
            return 0
        secrets = redactor.secret_spans(text)
        spans = secrets + redactor.path_spans(text)
        # A whole spelling may be the beginning of another: of two lines of base64 the second is known by the first.
        start, end = max((span for span in secrets if span[1] <= cut), default=(0, 0))
        if end and text[end:cut].isspace() and _goes_on(text[start:cut], redactor.secrets):
            cut = start
        while (divided := _enclosing_span_start(cut, spans)) is not None:
            cut = divided
        return cut

    def _last_end(self, text: str) -> int:
        """Returns the position after the last complete word or line."""
        if self._by_lines:
            return text.rfind("\n") + 1
        last = text[-1:]
        if not last or last.isspace() or last in _PROMPT_ENDS or _STYLE_AT_END.search(text[-_LONGEST_STYLE:]):
            return len(text)
        return len(text) - len(text.rsplit(None, 1)[-1])

    def _shown(self, text: str) -> str:
        redactor, before = self._redactor, len(self._seen)
        whole, parts, done = self._seen + text, [], before
        for start, end in redactor.secret_spans(whole):
            if end > before:  # also the rest of one whose first words were shown
                parts += [whole[done:start], redactor.secrets[whole[start:end]]]
                done = end
        since = done if parts else 0
        text = "".join((*parts, whole[done:]))
        self._seen = whole[max(since, len(whole) - redactor.longest_divided) :]
        shown = redactor.redact_paths(text, self._before, self._held[:2])
        self._before = (self._before + text[-PATH_CONTEXT:])[-PATH_CONTEXT:]
        return shown


def redact_start(text: str, length: int, redactor: Redactor) -> str:
    """The first `length` characters without secrets; none of one that the cut divides. What follows them must be there
    for the `reach` of the redactor, or to its end."""
    divided = _enclosing_span_start(length, redactor.secret_spans(text))
    return redactor.redact_secrets(text[: length if divided is None else divided])


def _goes_on(text: str, spellings: Iterable[str]) -> bool:
    return any(form.startswith(text) for form in spellings if len(form) > len(text))


def _enclosing_span_start(place: int, spans: list[tuple[int, int]]) -> int | None:
    """The beginning of the span that this place would divide."""
    return next((start for start, end in spans if start < place < end), None)


_MAX_JOINED_CHARS: Final = 4096
_CONTAINER_COST: Final = 64
"""Characters that a container counts as, so that the limit also ends deep nesting and values that
contain themselves.
"""
_SAFE_INTEGER: Final = 1 << 63
_TEXT_TYPES: Final = {str}


def joined_texts(*values: Any) -> str | None:
    """Every text and name in plain JSON values, one a line; None where there is more of it, or something else."""
    room = _MAX_JOINED_CHARS
    texts: list[str] = []
    found = list(values)
    for value in found:  # it grows meanwhile: a loop costs a fraction of a call for each part
        kind = type(value)
        if kind is str:
            room -= len(value)
            texts.append(value)
        elif kind is dict or kind is list:
            room -= _CONTAINER_COST + len(value)
            if room < 0:
                return None
            if kind is dict:
                texts += value
                found += value.values()
            else:
                found += value
        elif kind is int:
            if not -_SAFE_INTEGER < value < _SAFE_INTEGER:
                return None
        elif kind is float:
            if value - value != 0.0:
                return None
        elif value is not None and kind is not bool:
            return None
    if room < 0 or not _TEXT_TYPES.issuperset(map(type, texts)):  # a name may be anything in a tool's own value
        return None
    whole = "\n".join(texts)
    return whole if len(whole) <= _MAX_JOINED_CHARS else None


_MIN_BASE64_CHARS = 8
"""Shorter pieces of base64 would also be found in ordinary words."""
_MIN_LINE_CHARS = 16
"""Shorter lines of a value turn up elsewhere too."""
_WRAPPED_AT = (64, 76)
"""Line lengths of PEM and MIME (also of the `base64` command)."""
_LINE_BREAK = regex(r"[\r\n]+|(?:\\r)?\\n")
_PEM_MARKER = "-----"


_PAGE_QUOTES: Final = (("", ""), ("&quot;", ""), ("&quot;", "&#x27;"), ("&quot;", "&#39;"), ("&#34;", "&#39;"))
"""HTML spellings of both quotes; empty means unchanged."""
_MARKUP: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_MARKUP_IN_JSON: Final = ("&", "<", ">")
_QUOTES_IN_JSON: Final = ('\\"', "'")


def secret_spellings(value: str) -> set[str]:
    found = {value}
    stripped = value.strip()
    for text in {value, stripped} - {""}:
        found |= {
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            json.dumps(text)[1:-1].replace("/", "\\/"),
        }
        found |= _page_spellings(text)
        raw = text.encode("utf-8", "surrogatepass")
        for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw), quote(raw, safe="!'()*")):
            found |= {quoted, _lower_escapes(quoted)}
        found |= _base64_spellings(raw)
        escaped = "".join(f"%{byte:02X}" for byte in raw)
        found |= {raw.hex(), raw.hex().upper(), escaped, escaped.lower()}
    if stripped:
        found.add(stripped)
    return found


def _page_spellings(text: str) -> set[str]:
    """Returns the spellings in HTML and in JSON inside HTML, as Go and PHP write it: a server may repeat what it was
    sent.
    """
    found = set()
    for double, single in _PAGE_QUOTES:
        spelled = _replaced(text, (*_MARKUP, ('"', double or '"'), ("'", single or "'")))
        found.add(spelled)
    for signs in (_MARKUP_IN_JSON, (*_MARKUP_IN_JSON, *_QUOTES_IN_JSON)):
        for form in ("\\u{:04x}", "\\u{:04X}"):
            spelled = _replaced(json.dumps(text)[1:-1], [(sign, form.format(ord(sign[-1]))) for sign in signs])
            found |= {spelled, spelled.replace("/", "\\/")}
    return found


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def line_spellings(value: str) -> set[str]:
    """The pieces of a long secret that are shown alone where a text is shown line by line (`L7: …`)."""
    found = set()
    pieces = [piece.strip() for piece in _LINE_BREAK.split(value)]
    if len(pieces) > 1:
        for line in pieces:
            if len(line) >= _MIN_LINE_CHARS and not line.startswith(_PEM_MARKER):  # that marker is in every such file
                found |= {line, json.dumps(line)[1:-1], line.replace("/", "\\/")}
    for text in {value, value.strip(), value.strip() + "\n"}:
        encoded = base64.standard_b64encode(text.encode("utf-8", "surrogatepass")).decode()
        for width in _WRAPPED_AT:
            if len(encoded) > width:
                lines = [encoded[place : place + width] for place in range(0, len(encoded), width)]
                found |= {line for line in lines if len(line) >= _MIN_LINE_CHARS}
                # A last line too short to be known alone is known by the one before it.
                found |= {newline.join(lines[-2:]) for newline in ("\n", "\r\n", "\\n", "\\r\\n")}
    return found


def _lower_escapes(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _base64_spellings(raw: bytes) -> set[str]:
    """Base64 writes a value differently at each of three offsets. Only the characters that do not depend on its
    neighbours are searched, so a secret is found inside a longer encoded text (`user:password` of a header)."""
    found = set()
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode()
        found |= {text for text in (whole, whole.rstrip("=")) if len(text) >= _MIN_BASE64_CHARS}
        for before in range(3):
            encoded = encode(bytes(before) + raw).decode().rstrip("=")
            first = (before * 8 + 5) // 6  # characters that also hold bits of what stands before
            whole_chars = (before + len(raw)) * 8 // 6  # the last one may also hold bits of what follows
            core = encoded[first:whole_chars]
            if len(core) >= _MIN_BASE64_CHARS:
                found.add(core)
    return found


_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CREDENTIAL_WORDS: Final = frozenset(
    {"apikey", "token", "secret", "password", "passwd", "passphrase", "passcode", "pwd", "authorization"}
    | {"credential", "credentials", "cookie", "cookies", "jwt", "bearer", "authtoken", "accesstoken", "refreshtoken"}
    | {"privatekey", "clientsecret", "secretkey", "accesskey", "signingkey", "sessionkey"}
)
_CREDENTIAL_PAIRS: Final = frozenset(
    {(word, "key") for word in ("api", "private", "secret", "access", "signing", "session", "encryption", "auth")}
    | {("pass", "word"), ("pass", "phrase")}
)
_MAX_CLASSIFIED = 4096
CLASSIFIED_NAMES: Final[dict[str, int]] = {}
"""The cache of `classify_name`."""

NO_CREDENTIAL: Final = 0
MENTIONS_CREDENTIAL: Final = 1
"""The name speaks of a credential but goes on: `token_count`, `password_policy`."""
IS_CREDENTIAL: Final = 2


def classify_name(name: str) -> int:
    """Whether an argument name means a credential: `api_key`, `authToken`, `X-Client-Secret`. One of the three above;
    whole words only, so that `max_tokens` and `secretary` are not taken for one. Names repeat, so the answer is kept.
    """
    known = CLASSIFIED_NAMES.get(name)
    if known is None:
        if len(CLASSIFIED_NAMES) >= _MAX_CLASSIFIED:
            CLASSIFIED_NAMES.clear()
        known = CLASSIFIED_NAMES[name] = _classify(name)
    return known


def _classify(name: str) -> int:
    words = [word.lower() for word in _WORD.findall(name[:256])]
    last = -1
    for place, word in enumerate(words):
        if word in _CREDENTIAL_WORDS or (place and (words[place - 1], word) in _CREDENTIAL_PAIRS):
            last = place
    if last < 0:
        return NO_CREDENTIAL
    return IS_CREDENTIAL if last == len(words) - 1 else MENTIONS_CREDENTIAL
