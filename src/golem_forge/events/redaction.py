"""Redactor: takes known secret values, credentials by the name of their argument, and host paths out of what is shown.

Takes secrets by `add_secret` and paths by `add_path`; gives `text` and `value`. A secret becomes `[secret NAME]`, in
whatever spelling it turns up; the value of an argument named like a credential `[redacted N chars sha256:xxxxxxxx]`;
a zone's host path its virtual path. `value` gives back the same object when there was nothing to take out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from golem_forge.core.root_links import leads_to_root
from golem_forge.events.all_texts import all_texts
from golem_forge.events.credential_names import INSIDE, KNOWN_NAMES, NOT, credential
from golem_forge.events.jsontext import encode
from golem_forge.events.secret_forms import forms, line_forms

MIN_SECRET: Final = 4
MAX_SECRET: Final = 64 * 1024
MAX_SECRETS: Final = 1000
"""The first ones stay: a process may have them already. A later one is told of in the log and to the caller, who
decides whether it is handed out all the same."""
_log = logging.getLogger(__name__)
_MAX_DEPTH: Final = 100
_QUICK_DEPTH: Final = 8
"""So deep at most, a value that contains itself is soon found out."""
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_LONG: Final = 400
"""From this length on, one substring search per spelling is quicker than one regular expression over the text."""
_MANY: Final = 40
_LONG_FOR_MANY: Final = 20
"""The same where there are more than `_MANY` spellings, e.g. the lines of a key."""
_CLEAN_MOST: Final = 2048
_NAME: Final = re.compile(r"[\w.\-]*")
_NAMES: Final = re.compile(r"[\w.\-/\\]*")
_NAMES_IN_URL: Final = re.compile(r"[\w.\-%]*")
PATH_CONTEXT: Final = 300
"""So much of what stands before a path is looked at: more than the longest name of a file."""
_AFTER_PATH: Final = r"(?![\w-]|\.\w)"
"""`/srv/app` is found in `/srv/app/x` and at the end of a sentence, not in `/srv/app2` or `/srv/app.txt`."""
_ALREADY = re.compile(r"\[(?:redacted \d+ chars sha256:[0-9a-f]{8}|secret [^\]]*)\]")


class Redactor:
    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        self._values: set[str] = set()
        """The secrets themselves; `_secrets` has their spellings."""
        self._paths: dict[str, str] = {}
        self._secret_pattern: re.Pattern[str] | None = None
        self._path_pattern: re.Pattern[str] | None = None
        self._finder: re.Pattern[str] | None = None
        self._clean: set[str] = set()
        """Short texts that were looked through: ids and names come again and again."""
        self._shortest = 0
        self._long = _LONG
        self._learned = 0
        self._compiled = 0
        """How much of what was learned the patterns have: they are made when they are first needed, not at every step
        of a start that adds one after the other."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """Every known spelling of every secret, and what it becomes."""
        return self._secrets

    @property
    def version(self) -> int:
        """Another one after each thing that was learned."""
        return self._learned

    @property
    def paths(self) -> Mapping[str, str]:
        return self._paths

    def copy(self) -> Redactor:
        """One that knows the same and learns on its own from now on: for one child's output, with its own paths."""
        made = Redactor()
        made._secrets, made._paths, made._values = dict(self._secrets), dict(self._paths), set(self._values)
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
        for form in forms(value) | line_forms(value):
            self._secrets.setdefault(form, f"[secret {name}]")
        self._learn()
        return None

    def add_path(self, host: str, virtual: str) -> str | None:
        """Writes `virtual` wherever the host path turns up. Gives the reason when it cannot."""
        host = host.rstrip("/")
        if not host.startswith("/"):
            return f"{host or '/'!r}: only an absolute path below / can be rewritten"
        replacement = virtual.rstrip("/") or "/"
        for form in forms(host):
            if form.startswith(("/", "%2F", "%2f", "\\/")):
                self._paths[form] = replacement
        self._learn()
        return None

    def text(self, text: str) -> str:
        if len(text) < self._shortest or not self._learned or text in self._clean:
            return text
        if self._compiled != self._learned:
            self._compile()
        assert self._finder is not None
        if len(text) >= self._long:
            if not any(form in text for form in self._secrets) and not any(form in text for form in self._paths):
                return text
        elif not self._finder.search(text):
            if len(self._clean) >= _CLEAN_MOST:
                self._clean.clear()
            self._clean.add(text)
            return text
        return self.paths_out(self.secrets_out(text))

    def secret_spans(self, text: str) -> list[tuple[int, int]]:
        """Where `text` would replace a secret; a stream must not be divided there."""
        if self._compiled != self._learned:
            self._compile()
        return [match.span() for match in self._secret_pattern.finditer(text)] if self._secret_pattern else []

    def path_spans(self, text: str) -> list[tuple[int, int]]:
        if self._compiled != self._learned:
            self._compile()
        return [match.span() for match in self._path_pattern.finditer(text)] if self._path_pattern else []

    def secrets_out(self, text: str) -> str:
        """Only the secrets: content that a tool was asked for keeps its paths, or it could not be written back."""
        if not self._secrets or len(text) < self._shortest or text in self._clean:
            return text
        if self._compiled != self._learned:
            self._compile()
        pattern: re.Pattern[str] | None = self._secret_pattern
        if len(text) >= self._long:
            # Only those that are there: each alternative costs at every place of a long text.
            pattern = _alternatives({form: shown for form, shown in self._secrets.items() if form in text})
        return text if pattern is None else pattern.sub(lambda match: self._secrets[match.group()], text)

    def without_secrets(self, value: Any) -> Any:
        """A JSON value with `secrets_out` of each of its texts, names included; the same object if there was none.

        For what must keep its members whatever they are called, e.g. a schema with a property `password`.
        """
        said = all_texts(value)
        return value if said is not None and self.secrets_out(said) is said else self._without_secrets(value)

    def _without_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.secrets_out(value)
        if isinstance(value, Mapping):
            made = {self.secrets_out(str(name)): self._without_secrets(item) for name, item in value.items()}
            same = all(name in made and made[name] is item for name, item in value.items())
            return value if same else made
        if isinstance(value, list | tuple):
            items = [self._without_secrets(item) for item in value]
            return value if all(one is other for one, other in zip(items, value, strict=True)) else items
        return value

    def paths_out(self, text: str, before: str = "") -> str:
        """Only the host paths, in a text without secrets; `before` is the end of what came before it in a stream."""
        if not self._paths:
            return text
        if self._compiled != self._learned:
            self._compile()
        assert self._path_pattern is not None

        def virtual(match: re.Match[str]) -> str:
            start = match.start()
            context = text[max(0, start - PATH_CONTEXT) : start]
            if before and start < PATH_CONTEXT:
                context = (before + context)[-PATH_CONTEXT:]
            return match.group() if _inside_path(context) else self._paths[match.group()]

        return self._path_pattern.sub(virtual, text)

    def value(self, value: Any) -> Any:
        """The same value without what must not be shown; the same object if there was nothing."""
        return value if self._harmless(value, _QUICK_DEPTH) else self._any(value, ())

    def _harmless(self, value: Any, depth: int) -> bool:
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
                if type(key) is not str or (KNOWN_NAMES.get(key, 1) and credential(key)):
                    return False
                if shortest and len(key) >= shortest and self.text(key) is not key:
                    return False
                if type(item) not in _SCALARS and not self._harmless(item, depth - 1):
                    return False
            return True
        if kind is list or kind is tuple:
            return all(self._harmless(item, depth - 1) for item in value)
        return False

    def _any(self, value: Any, above: tuple[int, ...]) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind in _SCALARS:
            return value
        if kind is list or kind is tuple:
            return self._sequence(value, above)
        if isinstance(value, Mapping):
            return self._mapping(value, above)
        if isinstance(value, str):
            return self.text(str(value))
        if isinstance(value, bytes):
            text = value.decode("utf-8", "replace")
            shown = self.text(text)
            return value if shown is text or shown == text else shown
        if isinstance(value, list | tuple | set | frozenset):
            return self._sequence(list(value), above)
        return value

    def _mapping(self, value: Mapping[Any, Any], above: tuple[int, ...]) -> Any:
        above = _descend(value, above)
        if not above:
            return "[nested too deep]"
        changed: dict[Any, Any] | None = None
        for key, item in value.items():
            new_key = key
            if type(key) is str:
                named = credential(key)
                new = self._any(item, above) if named == NOT else self._credential(item, named)
                if self._shortest:
                    new_key = self.text(key)
            else:
                new = self._any(item, above)
            if new is not item or new_key is not key:
                if changed is None:
                    changed = dict(value)
                if new_key is not key and new_key != key:
                    del changed[key]
                changed[new_key] = new
        return value if changed is None else changed

    def _sequence(self, value: list[Any] | tuple[Any, ...], above: tuple[int, ...]) -> Any:
        above = _descend(value, above)
        if not above:
            return "[nested too deep]"
        new = [self._any(item, above) for item in value]
        if all(one is other for one, other in zip(new, value, strict=True)):
            return value
        return new if type(value) is list else tuple(new)

    def _credential(self, item: Any, named: int) -> Any:
        if item is None or item is True or item is False or item == "":
            return item
        if isinstance(item, str):
            shown = self.text(item)
            return shown if _ALREADY.fullmatch(shown) else redacted(item)
        if isinstance(item, int | float):
            # `token_count: 5` counts; `password: 1234` is one.
            return item if named == INSIDE else redacted(str(item))
        return redacted(encode(item).decode())

    def _learn(self) -> None:
        self._long = _LONG if len(self._secrets) + len(self._paths) <= _MANY else _LONG_FOR_MANY
        self._shortest = min(map(len, (*self._secrets, *self._paths)))
        self._learned += 1
        self._clean.clear()

    def _compile(self) -> None:
        """What is learned meanwhile, in another thread, counts the next time."""
        learned, secrets, paths = self._learned, dict(self._secrets), dict(self._paths)
        self._secret_pattern = _alternatives(secrets)
        self._path_pattern = _alternatives(paths, _AFTER_PATH)
        self._finder = _alternatives({**secrets, **paths})
        self._compiled = learned


def redacted(text: str) -> str:
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


def _descend(value: object, above: tuple[int, ...]) -> tuple[int, ...]:
    """The containers above, with this one; empty when it is one of them or too deep."""
    if len(above) >= _MAX_DEPTH or id(value) in above:
        return ()
    return (*above, id(value))


def _alternatives(spellings: Mapping[str, str], after: str = "") -> re.Pattern[str] | None:
    """Longest first: a short secret must not be found inside a longer one and leave the rest of it standing."""
    if not spellings:
        return None
    longest_first = sorted(spellings, key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(map(re.escape, longest_first))}){after}")
