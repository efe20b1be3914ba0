"""A key that is sent and never shown: not in what is printed, not in files, not in tracebacks."""

from urllib.parse import urlsplit

from icl_lab.errors import BadValue

HIDDEN = "<key>"
LEAST = 8  # characters; shorter ones, such as EMPTY, are placeholders of servers that need no key


class Secret:
    """Holds a key; written out it is ``<key>``."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def reveal(self) -> str:
        """Returns the key, for the one place that sends it."""
        return self._key

    def hide(self, text: str) -> str:
        """Returns a text without the key, should a server have repeated it."""
        return text.replace(self._key, HIDDEN) if len(self._key) >= LEAST else text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a key is not written to disk")


def address(url: str) -> str:
    """Returns the address of a server as it is kept in records; raises ``BadValue`` on one that is none.

    An address with a password or a query in it would put a secret into every record.
    """
    try:
        parts = urlsplit(url.strip())
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError as error:
        raise BadValue(f"the address of the server cannot be read: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue("the address of the server begins with http:// or https:// and names a host.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadValue("the address of the server holds a name, password or query; give the key as OPENAI_API_KEY.")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
