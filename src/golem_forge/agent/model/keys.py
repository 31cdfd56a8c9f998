"""ModelKeys: the keys of model providers that a person stored, each for one address.

Takes FORGE_HOME; answers from a small index whether a key is stored, and gives the key itself only for the address for
which it was stored. Keys live in the system keyring where there is one, else in FORGE_HOME/state/model_keys in files of
mode 0600. An environment variable wins over a stored key: the caller looks there first.

Threat: a project's forge.yaml may send a provider's requests to another address (`models.<provider>.base_url`). A key
that is stored for the provider's own address is never given for that one, whoever trusts the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.core.regex import regex
from golem_forge.storage.credentials import CredentialFolder
from golem_forge.storage.home import ForgeHome

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor

_FOLDER: Final = ("state", "model_keys")
_KEY: Final = regex(r"[!-~]{8,4096}")
"""A valid key: characters of an HTTP header, and long enough to be redacted from texts."""


def normal_address(base_url: str) -> str:
    """Returns the one spelling of an address: scheme and host in lower case, no slash at the end."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), "", ""))


def usable_key(text: str) -> str:
    """The key without what pasting adds around it. Raises ForgeError, which does not repeat it."""
    key = text.strip()
    if not _KEY.fullmatch(key):
        raise ForgeError(
            "that is not a key: a key has at least 8 characters, only letters, digits and signs, and no space inside",
            code="KEY_UNUSABLE",
        )
    return key


class ModelKeys:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._records = CredentialFolder(home, *_FOLDER, again="store the keys again: forge models setup")

    def address(self, provider: str) -> str:
        """The address for which a key of this provider is stored; empty: none is."""
        if not self._home.path.joinpath(*_FOLDER).is_dir():
            return ""
        found = self._records.index().get(provider)
        return found if isinstance(found, str) else ""

    def has(self, provider: str, base_url: str) -> bool:
        """Whether a key is stored for this address. Opens no keyring."""
        return bool(base_url) and self.address(provider) == normal_address(base_url)

    def place(self, provider: str) -> str:
        """`keyring` or `file`; empty: no key is stored."""
        if not self.address(provider):
            return ""
        return "file" if self._records.has_file(self._name(provider)) else "keyring"

    def load(self, provider: str, base_url: str) -> str:
        """The key; empty: there is none for this address. Blocks: a keyring may ask its user."""
        if not self.has(provider, base_url):
            return ""
        record = self._records.load(self._name(provider)) or {}
        key = record.get("key")
        same = record.get("base_url") == normal_address(base_url)  # the index alone is not believed
        return key if same and isinstance(key, str) and _KEY.fullmatch(key) else ""

    def save(self, provider: str, base_url: str, key: str) -> str:
        """Returns the place, `keyring` or `file`. Blocks."""
        address = normal_address(base_url)
        record = {"provider": provider, "base_url": address, "key": usable_key(key)}
        self._records.save(provider, address, self._name(provider), record)
        return self.place(provider)

    def forget(self, provider: str) -> bool:
        """Removes the stored key. Returns False if there was none."""
        if not self.address(provider):
            return False
        self._records.forget(self._name(provider))
        self._records.remove_entry(provider)
        return True

    def learn_files(self, redactor: Redactor) -> None:
        """Teaches the Redactor the keys that are in files. Those in a keyring it learns when they are loaded."""
        if not self._home.path.joinpath(*_FOLDER).is_dir():
            return
        for provider, address in self._records.index().items():
            in_file = isinstance(address, str) and self._records.has_file(self._name(provider))
            if in_file and (key := self.load(provider, address)):
                redactor.add_secret("MODEL_KEY", key)

    def _name(self, provider: str) -> str:
        """The keyring belongs to the person and not to one FORGE_HOME, so the name says which home it is for."""
        return f"model-{provider}-{digest(str(self._home.path))[:12]}.json"
