"""Data too large for its line: put into a blob when the event is appended, read from it when the event is given out.

Synchronous, for threads and commands: no event loop is loaded.
"""

from __future__ import annotations

from typing import Any

from turnkeeper.storage import blobs
from turnkeeper.storage.errors import BlobMissing, Corrupt, TooLarge
from turnkeeper.storage.exact_json import decode_event, encode_data
from turnkeeper.storage.limits import BLOBS_A_PATCH_MAX
from turnkeeper.storage.requests import Gap, StoredEvent

from ..blob_references import BLOB_MARK, SPILL_BYTES, blob_of_stub, blobs_named_in, stub_for
from ..records import Event

_DATA = b',"data":'


def place(root: str, line: bytes, type: str, stream: str) -> tuple[bytes, list[str], dict[str, bytes]]:
    """Give the line that is to be stored, the blobs that it names, and the contents that were put."""
    begin = line.index(_DATA) + len(_DATA)
    content = line[begin:-2]
    data = decode_event(content)
    named = blobs_named_in(data) if BLOB_MARK in content else []
    if len(named) >= BLOBS_A_PATCH_MAX:
        what = f"what an event ({type}) refers to, {len(named)} blobs, each by a digest of 64 bytes,"
        raise TooLarge(what, 64 * len(named), 64 * (BLOBS_A_PATCH_MAX - 1))
    for digest in named:
        if not blobs.renew(root, digest):
            raise BlobMissing(stream, digest)
    if len(content) <= SPILL_BYTES and blob_of_stub(data) is None:
        return line, named, {}
    digest = blobs.put(root, content)
    stub = encode_data(type, stub_for(digest, len(content), type, data))
    return line[:begin] + stub + b"}\n", [*named, digest], {digest: content}


def named_by(root: str, line: bytes) -> list[str]:
    """Give the blobs of a line, those that its spilled data refers to with them."""
    try:
        data = decode_event(line)["data"]
        stub = blob_of_stub(data)
        named = blobs_named_in(data)
        if stub is not None:
            named = [stub[0], *blobs_named_in(decode_event(blobs.get(root, stub[0])))]
    except (BlobMissing, Corrupt, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [digest for digest in named if blobs.renew(root, digest)][:BLOBS_A_PATCH_MAX]


def whole(root: str, event: StoredEvent) -> StoredEvent | Gap:
    """Put an event's spilled data back into its line; where it can't be read, give the gap that this leaves."""
    found = blob_of_stub(decode_event(event.line)["data"]) if BLOB_MARK in event.line else None
    if found is None:
        return event
    spilled = _spilled(root, event.stream, event.seq, found[0])
    if isinstance(spilled, Gap):
        return spilled
    begin = event.line.index(_DATA) + len(_DATA)
    return event._replace(line=event.line[:begin] + spilled[0] + b"}")


def complete(root: str, events: list[Event]) -> list[Gap]:
    """Put the data of spilled events in place; give those that can't be read."""
    gaps: list[Gap] = []
    for event in events:
        found = blob_of_stub(event.data)
        assert found is not None
        spilled = _spilled(root, event.stream, event.seq, found[0])
        if isinstance(spilled, Gap):
            gaps.append(spilled)
        else:
            event.data = spilled[1]
    return gaps


def _spilled(root: str, stream: str, seq: int, digest: str) -> tuple[bytes, dict[str, Any]] | Gap:
    """Read an event's data from its blob, as its bytes and decoded."""
    try:
        content = blobs.get(root, digest, stream)
        return content, decode_event(content)
    except BlobMissing as error:
        return Gap(seq, 1, "the blob that holds its data is missing", blobs.blob_path(error.digest), 0)
    except Corrupt as error:
        return Gap(seq, 1, error.reason, error.path, 0)
    except ValueError:
        return Gap(seq, 1, "its blob is no event's data", blobs.blob_path(digest), 0)
