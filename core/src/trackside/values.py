"""Values as trackers can take them. Pure functions by duck typing: nothing here imports numpy or torch."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import Any

REDACTED = "***"

SMALL_ARRAY = 64
DEEPEST = 32
_MEMORY_ADDRESS = r" at 0x[0-9a-fA-F]+"


def scalar(value: Any) -> int | float | None:
    """The number that `value` is, or None if it is none.

    Takes bool, int, float, numpy scalars, arrays and tensors of exactly one element on any device, Decimal, Fraction
    and whatever else converts itself by `item()` or `__float__`. Text is no number, not even "1.5". nan and the
    infinities are kept; a number too large for a float (10**400) is None.
    """
    if type(value) is float:
        return value
    try:
        if isinstance(value, int):
            float(value)
            return int(value)
        if hasattr(value, "item"):
            value = value.item()
        if isinstance(value, int):
            return int(value)
        return float(value) if hasattr(value, "__float__") else None
    except Exception:  # an object that cannot say its number, for whatever reason, has none
        return None


def flatten(values: Mapping[Any, Any], separator: str = "/", expand: bool = False) -> dict[str, Any]:
    """One flat dict of nested mappings, dataclasses and lists of them: `{"a": {"b": 1}}` becomes `{"a/b": 1}`.

    Lists of plain values stay lists, unless `expand` gives each element of a list of up to 64 a key of its own (`a/0`,
    `a/1`). Of two values whose keys would be the same, the later one gets `_` appended.
    """
    flat: dict[str, Any] = {}
    for key, value in _leaves(values, separator, expand):
        while key in flat:
            key += "_"
        flat[key] = value
    return flat


def _leaves(values: Mapping[Any, Any], separator: str, expand: bool, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = prefix + _key(name)
        children = _children(value, expand)
        if children:
            yield from _leaves(children, separator, expand, key + separator)
        else:
            yield key, value


def _children(value: Any, expand: bool) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        is_nested = len(value) <= SMALL_ARRAY if expand else any(_children(item, expand) for item in value)
        return dict(enumerate(value)) if is_nested else None
    return None


def _key(name: Any) -> str:
    return str(name.value if isinstance(name, Enum) else name)


def describe(value: Any) -> Any:
    """`value` as plain data that JSON can hold: None, bool, int, float, str, lists and dicts of them.

    Enums become their value, dataclasses and objects with `to_dict()` dicts, sets sorted lists, arrays of up to 64
    elements lists, larger ones their type and shape, and everything else its own text without memory addresses. nan
    and the infinities stay floats, and an int that no float holds becomes text. What contains itself is named where it
    comes back, and what lies below 32 others, or fails when it is looked at, is named by its type.
    """
    return _describe(value, ())


def _describe(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or type(value) in (bool, float, str):
        return value
    try:
        return _describe_object(value, above)
    except Exception:  # a proxy that answers everything, a tensor without data, a method that raises
        return f"<{_type_name(value)}>"


def _describe_object(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, Enum):
        return _describe(value.value, above)
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, type) and (number := scalar(value)) is not None:
        return number
    if id(value) in above:
        return f"<{_type_name(value)} again>"
    if len(above) == DEEPEST:
        return f"<{_type_name(value)}>"
    above = (*above, id(value))
    if (mapping := _as_mapping(value)) is not None:
        return {_key(name): _describe(item, above) for name, item in mapping.items()}
    if isinstance(value, (list, tuple, deque)):
        return [_describe(item, above) for item in value]
    if isinstance(value, Set):
        return sorted((_describe(item, above) for item in value), key=repr)
    if hasattr(value, "tolist") and hasattr(value, "shape") and not isinstance(value, type):
        return _describe_array(value, above)
    return _text(value)


def _as_mapping(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, type):
        return None
    for method in ("to_dict", "_asdict"):
        if callable(convert := getattr(value, method, None)):
            try:
                converted = convert()
            except Exception:  # a config that cannot be written as a dict is described as text
                continue
            if isinstance(converted, Mapping):
                return converted
    return None if isinstance(value, (list, tuple)) else _children(value, expand=False)


def _describe_array(value: Any, above: tuple[int, ...]) -> Any:
    size = 1
    for length in value.shape:
        size *= int(length)
    if size > SMALL_ARRAY:
        return f"<{_type_name(value)} of shape {tuple(int(length) for length in value.shape)}>"
    return _describe(value.tolist(), above)


def _text(value: Any) -> str:
    if hasattr(value, "isoformat"):  # dates and times, without importing what would know them
        return str(value.isoformat())
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(_MEMORY_ADDRESS, "", str(value))


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: `?` for the lone surrogates that Python puts for undecodable bytes of a file name."""
    return text.encode("utf-8", "replace").decode("utf-8")


# ---- secrets ----------------------------------------------------------------------------------------------------

# Texts, not compiled patterns: compiling them would take longer than the rest of the import.
_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_SECRET_WORDS = r"(?:password|passphrase|passwd|secret|credential|apikey)s?$"
_SECRET_KEYS = {"api", "access", "secret", "private"}
_VOCABULARY = {"pad", "bos", "eos", "unk", "sep", "cls", "mask", "image", "audio", "video"}

_SHORTEST_SECRET = 8
_KNOWN_SHAPES = (
    r"\bhf_(?=\w*[A-Z0-9])[A-Za-z0-9]{6,}"
    r"|(?<![A-Za-z0-9])(?:"  # also within a name: run_ghp_...
    r"hf_[A-Za-z0-9]{20,}"
    r"|sk-(?=[\w-]{0,40}[A-Z0-9])[\w-]{8,}"
    r"|(?:gh[pousr]_|github_pat_|glpat-)[\w-]{8,}"
    r"|xox[abprs]-[\w-]{8,}"
    r"|A[KS]IA[0-9A-Z]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_URL_CREDENTIALS = r"(?<![\w+.-])(?P<scheme>[\w+.-]+://)(?P<user>[^\s/@:'\"]*)(?P<password>:[^\s/?#'\"]*)?@"
_ASSIGNMENT = (
    r"(?is)(?<![\w.-])(?P<key>-{0,2}[\w.-]*(?:password|passphrase|passwd|secret|credential|key|token)s?)"
    r"(?P<gap>\\*['\"]?\s*[:=]\s*|\s+)"
    r"(?:(?P<quote>\\*['\"])(?:(?!(?P=quote))(?:\\.|.))*(?:(?P=quote)|$)|[^\s'\",;&}\])]+)"
)
_BEARER = r"\b((?i:bearer|basic))\s+(?=[\w.~+/=-]*[A-Z0-9+/=])[\w.~+/=-]{8,}"


def is_secret_key(key: str) -> bool:
    """Whether values under `key` are secrets: by its last words, whatever case or separators it is written with.

    Passwords, passphrases, secrets, credentials, `*_api_key`, `*_access_key`, `*_secret_key`, `*_private_key`, one or
    several, `token` and `*_token` are; the tokens of a vocabulary (`pad_token`, `image_token`), `max_tokens` and
    `tokenizer_name` are not.
    """
    words = tuple(word.lower() for word in re.findall(_WORDS, key))
    if not words:
        return False
    if words[-1] == "token":
        return words[-2:-1] == () or words[-2] not in _VOCABULARY
    if words[-1] in ("key", "keys"):
        return words[-2:-1] != () and words[-2] in _SECRET_KEYS
    return re.search(_SECRET_WORDS, words[-1]) is not None


def redact(value: Any, environ: Mapping[str, str] = os.environ) -> Any:
    """A copy of plain data (see `describe`) in which each secret text is `***`; numbers and empty texts stay.

    Secret is every text under a secret key (see `is_secret_key`), at any depth, and in any text: tokens of known
    shape, credentials in a URL, `--api-key VALUE` and `api_key=VALUE`, and the values of the variables in `environ`
    with secret names.
    """
    return _redact(value, _secret_values(environ))


class Redaction:
    """Redacts log after log: numbers under names that were harmless before cost nothing."""

    def __init__(self) -> None:
        self.harmless: set[str] = set()
        """Names under which numbers need no look."""

    def __call__(self, plain: dict[str, Any]) -> dict[str, Any]:
        if plain.keys() <= self.harmless and all(isinstance(value, (int, float)) for value in plain.values()):
            return plain
        redacted: dict[str, Any] = redact(plain)
        self.harmless |= plain.keys() & redacted.keys()
        return redacted


def _secret_values(environ: Mapping[str, str]) -> list[str]:
    secrets = {value for key, value in environ.items() if len(value) >= _SHORTEST_SECRET and is_secret_key(key)}
    return sorted(secrets, key=len, reverse=True)


def _redact(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return _redact_text(value, secrets)
    if isinstance(value, Mapping):
        return {
            _redact_text(key, secrets) if isinstance(key, str) else key: (
                _hide(item) if isinstance(key, str) and is_secret_key(key) else _redact(item, secrets)
            )
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return _redact_sequence(value, secrets)
    return value


def _redact_sequence(values: list[Any] | tuple[Any, ...], secrets: list[str]) -> list[Any]:
    """A sequence may be a command line: what follows `--hub_token`, or `--hub_token=` in one argument, is secret."""
    redacted, previous = [], None
    for value in values:
        option, equals, rest = value.partition("=") if isinstance(value, str) else ("", "", "")
        if isinstance(previous, str) and previous.startswith("-") and is_secret_key(previous):
            redacted.append(_hide(value))
        elif rest and is_secret_key(option):
            redacted.append(_redact_text(option, secrets) + equals + REDACTED)
        else:
            redacted.append(_redact(value, secrets))
        previous = value
    return redacted


def _hide(value: Any) -> Any:
    if isinstance(value, str):
        return REDACTED if value else value
    if isinstance(value, Mapping):
        return {key: _hide(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hide(item) for item in value]
    return value


def _redact_text(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    text = re.sub(_KNOWN_SHAPES, REDACTED, text)
    text = re.sub(_URL_CREDENTIALS, _hide_url, text)
    text = re.sub(_BEARER, rf"\1 {REDACTED}", text)
    return re.sub(_ASSIGNMENT, _hide_assignment, text)


def _hide_url(match: re.Match[str]) -> str:
    is_login_only = match["password"] is None and "http" not in match["scheme"]
    is_empty = not match["user"] + (match["password"] or "")
    return match[0] if is_login_only or is_empty else f"{match['scheme']}{REDACTED}@"


def _hide_assignment(match: re.Match[str]) -> str:
    """`--option value`, `key=value` and `key: value` count, but prose may well say "next token: x"."""
    key, gap, quote = match["key"], match["gap"], match["quote"] or ""
    assigns = key.startswith("-") or "=" in gap or (":" in gap and key.lower() != "token")
    return f"{key}{gap}{quote}{REDACTED}{quote}" if assigns and is_secret_key(key) else match[0]
