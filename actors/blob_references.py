"""Blobs as events name them: by a reference that a program puts into its data, or by a stub in place of all of it.

    {"blob": DIGEST, "bytes": N, "media_type": "image/png"}      a reference, anywhere in an event's data
    {"$blob": DIGEST, "bytes": N, …}                             an event's whole data: the rest is what folding needs

What a program appends is never taken for a stub: data that looks like one is put into a blob itself, however small it
is. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnkeeper.storage.blobs import is_digest
from turnkeeper.storage.limits import KIB, MIB

from .folding import folded_part

SPILL_BYTES: Final = 256 * KIB
"""Data whose JSON is longer than this lies in a blob; a shorter line is looked at no further."""

EVENT_BYTES_MAX: Final = 64 * MIB
"""One event, its data wherever it lies."""

BLOB_MARK: Final = b'blob":"'
"""What an encoded line has in it if its data has a reference, or looks like a stub: no string can hold it unescaped."""

_UNDERSCORE, _DOLLAR = b"_$"

_BLOB, _STUB, _BYTES, _MEDIA_TYPE = "blob", "$blob", "bytes", "media_type"


def is_plain(line: bytes) -> bool:
    """Say quickly that an event stands in its line and names no blob; one that isn't plain has to be looked into.

    A reference has an underscore in `media_type`, a stub its dollar sign: most lines have neither, and one byte is
    found six times faster than the mark is.
    """
    return len(line) < SPILL_BYTES and not ((_UNDERSCORE in line or _DOLLAR in line) and BLOB_MARK in line)


def as_content(data: object) -> bytes:
    """Give what a program wants to put as bytes of its own. Raises TypeError for what is no bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"a blob is bytes, not {type(data).__name__}; encode it first")
    return bytes(data)


def check_media_type(media_type: object) -> None:
    """Raise TypeError for what is no media type."""
    if not isinstance(media_type, str):
        raise TypeError(f"a media type is a string such as image/png, not {media_type!r:.80}")


def reference_to(digest: str, size: int, media_type: str) -> dict[str, Any]:
    """Make a reference to a blob of `size` bytes."""
    return {_BLOB: digest, _BYTES: size, _MEDIA_TYPE: media_type}


def digest_referred_to(ref: Any) -> str:
    """Give the digest in a reference. Raises ValueError for what is none."""
    digest = ref.get(_BLOB) if isinstance(ref, Mapping) else None
    if not isinstance(digest, str) or not is_digest(digest):
        raise ValueError(
            f"a reference to a blob has the digest that put_blob gave as its `blob`; this has none: {ref!r:.200}"
        )
    return digest


def blobs_named_in(data: Any) -> list[str]:
    """Give the digests of all references in an event's decoded data, each once."""
    found: dict[str, None] = {}
    pending: list[Any] = [data]
    while pending:
        value = pending.pop()
        if value.__class__ is list:
            pending += value
        elif value.__class__ is dict:
            pending += value.values()
            if is_digest(value.get(_BLOB)) and value.get(_BYTES).__class__ is int and _MEDIA_TYPE in value:
                found[value[_BLOB]] = None
    return list(found)


def stub_for(digest: str, size: int, type: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Make what stands in a line instead of data whose JSON has `size` bytes."""
    return {_STUB: digest, _BYTES: size, **folded_part(type, data)}


def blob_of_stub(data: Mapping[str, Any]) -> tuple[str, int] | None:
    """Give digest and size of the blob that an event's data is in; None where it isn't in one."""
    if _STUB not in data:
        return None
    digest, size = data[_STUB], data.get(_BYTES)
    return (digest, size) if is_digest(digest) and size.__class__ is int else None
