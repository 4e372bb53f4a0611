"""Sending a message to a session: durable in its inbox when it returns, and once for its key.

The message is encoded here and numbered by the writer. A key is made where the caller gives none, so that what is sent
again after a lost answer is recognised. The receiver needn't be open, and needn't know the sender.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any

from turnkeeper.storage.errors import BlobMissing, NotFound
from turnkeeper.storage.exact_json import encode_event

from ..blob_references import EVENT_BYTES_MAX, is_plain
from ..client.owned_stream import OwnedStream
from ..core_types import SESSION_CREATED
from ..folding import INBOX_MESSAGE
from ..names import check_key, check_wanted
from ..protocol import SEND
from ..tails import message_tail

if TYPE_CHECKING:
    from ..client.client import Client


async def make_known(client: Client, stream: OwnedStream) -> None:
    """Store a session of which nothing is stored yet, by an event that says that it was made: now others can name it.

    Cancelled it may be stored, or not. Raises as `Session.flush`.
    """
    if stream.reservation is None:
        return
    if stream.head == stream.acknowledged and stream.takes_lines:
        stream.add(encode_event(stream.id, stream.head, time_ns() // 1_000_000, SESSION_CREATED, {}))
    client.link.request_flush(stream)
    await client.wait_until(stream, lambda: stream.reservation is None)


async def send(
    client: Client, to: str, type: str, data: Mapping[str, Any], *, key: str | None, author: OwnedStream | None = None
) -> int:
    """Send a message, in the name of the session `author` if there is one; give its number in the receiver's inbox.

    Cancelled it may have been sent, or not. Raises as `Runtime.send` and `Session.send` say.
    """
    client.check()
    word = client.vocabulary.word(type)
    if word.check is not None:
        word.check(type, data)
    sender = None if author is None else author.id
    tail = message_tail(type, data, sender, time_ns() // 1_000_000, bytes_max=EVENT_BYTES_MAX)
    check_wanted(to)
    if key is None:
        key = secrets.token_hex(16)
    else:
        check_key(key, INBOX_MESSAGE)
    if author is not None:
        await make_known(client, author)
    blobs: list[str] = []
    if not is_plain(tail):
        tail, blobs = await client.blobs.place(tail, INBOX_MESSAGE, to)
    message: dict[str, Any] = {"op": SEND, "to": to, "tail": tail, "key": key, "blobs": blobs}
    message["author"] = None if author is None else [author.id, author.epoch]
    mended: set[str] = set()
    while True:
        try:
            reply = await client.answered(client.link.ask(message, for_caller=True))
        except (BlobMissing, NotFound) as refusal:
            if str(refusal) in mended or not await _mend(client, refusal):
                raise
            mended.add(str(refusal))
        else:
            client.blobs.forget(blobs)
            seq: int = reply["seq"]
            return seq


async def _mend(client: Client, refusal: BlobMissing | NotFound) -> bool:
    """Do what lets a message be sent that was refused, if that can be done here, and say whether it can."""
    if isinstance(refusal, BlobMissing):
        return await client.blobs.restore(refusal.digest)
    stream = client.stream_open_here(refusal.wanted)
    if stream is None:
        return False
    await make_known(client, stream)
    return True
