"""Read what clients ask of the writer, checking every field: bytes from a socket in, a request or a FrameError out.

A client that sends what is no request loses its connection, and nobody else notices. What a request means (lines,
sizes, epochs) is checked by the journal; here it only gets the types that the journal relies on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.identity import Identity
from turnkeeper.storage.format import is_id
from turnkeeper.storage.limits import BATCH_BYTES_MAX, HEADER_BYTES_MAX, MIB, PATCH_BYTES_MAX
from turnkeeper.storage.requests import Append, Post

from ..names import is_name
from ..protocol import HEADER_DEPTH_MAX

RECORDS_MAX = 16
RECORDS_BYTES_MAX = 4 * MIB
"""Records of tasks that are stored in one commit: their number, and their tails together."""

assert RECORDS_BYTES_MAX + RECORDS_MAX * MIB // 64 < BATCH_BYTES_MAX, (
    "one batch holds them, and their lines' beginnings"
)
assert RECORDS_MAX * (PATCH_BYTES_MAX + MIB // 64) < HEADER_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Opening:
    """A wish to own a stream: `wanted` is an id, a beginning of one, or a host's key.

    `owner` has boot, pid, start, host, token. `header` is what a new stream begins with, None if none is to be made.
    `known` are the types that the opener has registered.
    """

    wanted: str
    owner: Mapping[str, Any]
    takeover: bool
    header: Mapping[str, Any] | None
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A wish to change what anybody may change of the session that `wanted` names.

    `title` is a new one, an empty one for none; of `labels` those with None go; `deleted` says whether it is to be so.
    What is None, or empty for labels, stays as it is.
    """

    wanted: str
    title: str | None
    labels: Mapping[str, str | None]
    deleted: bool | None


@dataclass(frozen=True, slots=True)
class Sending:
    """A message for a session: `to` is its id, a beginning of it, or a host's key.

    `tail` is the message's line from its time on, `blobs` are those that it names, and `author` is the session in whose
    name it is sent, with the epoch under which that is owned.
    """

    to: str
    tail: bytes
    key: str
    blobs: list[str]
    author: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Recording:
    """What has become of tasks: posts of their streams and notices for sessions, to be stored in one commit."""

    posts: list[Post]
    notices: list[Sending]

    @property
    def size(self) -> int:
        """The bytes of all tails."""
        return sum([len(post.tail) for post in self.posts]) + sum([len(notice.tail) for notice in self.notices])


@dataclass(frozen=True, slots=True)
class Listening:
    """A wish to hear of messages from number `next` on, by who owns `session` under `epoch`."""

    session: str
    epoch: int
    next: int


def appends_from_wire(entries: Any) -> list[Append]:
    """Read the appends of a frame. Raises FrameError."""
    if entries.__class__ is not list:
        raise FrameError("a frame of appends is [number, [append, ...]]")
    return [_append_from_wire(entry) for entry in entries]


def _append_from_wire(entry: Any) -> Append:
    if entry.__class__ is not list or len(entry) != 7:
        raise FrameError("an append is [stream, epoch, first, lines, patch, key, create]")
    stream, epoch, first, lines, patch, key, create = entry
    if stream.__class__ is not str or lines.__class__ is not bytes or create.__class__ is not bool:
        raise FrameError("an append's stream is text, its lines are bytes, its create is true or false")
    if epoch.__class__ is not int or first.__class__ is not int or epoch < 0 or first < 0:
        raise FrameError("an append's epoch and first are numbers from 0 on")
    if patch is not None and not _is_plain_map(patch):
        raise FrameError("an append's patch is a map of plain values")
    if key is not None and not is_name(key):
        raise FrameError("an append's key is a text")
    return Append(stream, epoch, first, lines, patch, key, create)


def opening_from_wire(message: Mapping[str, Any]) -> Opening:
    """Read the wish to open a stream. Raises FrameError."""
    wanted, header, takeover = message.get("wanted"), message.get("create"), message.get("takeover", False)
    known = message.get("known", [])
    if not is_name(wanted) or takeover.__class__ is not bool:
        raise FrameError("an opening names what is wanted, and takeover is true or false")
    if header is not None:
        if not _is_plain_map(header) or not is_name(header.get("id")) or not is_id(header["id"]):
            raise FrameError("a new stream's header is a map of plain values with an id")
        if header.get("key") is not None and not is_name(header["key"]):
            raise FrameError("a new stream's key is a text")
        if header.get("parent_seq") is not None and not _is_count(header["parent_seq"]):
            raise FrameError("the number of events that a fork begins with is a number from 0 on")
    if known.__class__ is not list or not all(map(is_name, known)):
        raise FrameError("the types that an opener knows are a list of short texts")
    return Opening(str(wanted), _owner_from_wire(message.get("owner")), takeover, header, frozenset(known))


def change_from_wire(message: Mapping[str, Any]) -> Change:
    """Read the wish to change a session. Raises FrameError."""
    wanted, title, deleted = message.get("wanted"), message.get("title"), message.get("deleted")
    labels = message.get("labels", {})
    if not is_name(wanted) or title.__class__ not in (str, type(None)) or deleted.__class__ not in (bool, type(None)):
        raise FrameError("a change names a session; its title is a text, and deleted is true or false")
    if labels.__class__ is not dict or not all(
        name.__class__ is str and value.__class__ in (str, type(None)) for name, value in labels.items()
    ):
        raise FrameError("a change's labels are a map of texts")
    return Change(str(wanted), title, labels, deleted)


def sending_from_wire(message: Mapping[str, Any]) -> Sending:
    """Read the wish to send a message. Raises FrameError."""
    to, tail, key, blobs = (message.get(name) for name in ("to", "tail", "key", "blobs"))
    if not is_name(to) or not is_name(key) or tail.__class__ is not bytes:
        raise FrameError("a message has a receiver and a key, and its tail is bytes")
    if blobs.__class__ is not list or not all(is_name(each) for each in blobs):
        raise FrameError("a message's blobs are a list of digests")
    author = message.get("author")
    if author is not None:
        if author.__class__ is not list or len(author) != 2 or not (is_name(author[0]) and _is_count(author[1])):
            raise FrameError("a message's author is [session, epoch]")
        author = (author[0], author[1])
    return Sending(str(to), bytes(tail), str(key), blobs, author)


def recording_from_wire(message: Mapping[str, Any]) -> Recording:
    """Read records of tasks: as few and as small as one batch certainly holds. Raises FrameError."""
    posts, notices = message.get("posts"), message.get("notices")
    if posts.__class__ is not list or notices.__class__ is not list:
        raise FrameError("records of tasks are a list of posts and one of notices")
    if not 0 < len(posts) + len(notices) <= RECORDS_MAX:
        raise FrameError(f"from 1 to {RECORDS_MAX} records of tasks are stored together")
    recording = Recording([_post_from_wire(post) for post in posts], [_notice_from_wire(notice) for notice in notices])
    if len({post.stream for post in recording.posts}) < len(posts):
        raise FrameError("records that are stored together are of different tasks")
    if recording.size > RECORDS_BYTES_MAX:
        raise FrameError(f"records of tasks that are stored together have at most {RECORDS_BYTES_MAX:,} bytes")
    return recording


def _post_from_wire(post: Any) -> Post:
    match post:
        case {"stream": str(stream), "tail": bytes(tail), "key": str(key), "header": header, "patch": patch}:
            if is_name(stream) and is_name(key) and _is_plain_map(header) and (patch is None or _is_plain_map(patch)):
                return Post(stream, tail, key, header, patch)
    raise FrameError("a post has a stream, a key, a tail in bytes, a header and a patch of plain values")


def _notice_from_wire(notice: Any) -> Sending:
    match notice:
        case {"to": str(to), "tail": bytes(tail), "key": str(key)} if is_name(to) and is_name(key):
            return Sending(to, tail, key, [], None)
    raise FrameError("a notice has a receiver, a key, and a tail in bytes")


def listening_from_wire(message: Mapping[str, Any]) -> Listening:
    """Read the wish to hear of messages. Raises FrameError."""
    match message:
        case {"session": str(session), "epoch": int(epoch), "next": int(following)} if is_name(session):
            if _is_count(epoch) and _is_count(following):
                return Listening(session, epoch, following)
    raise FrameError("who listens has a session, its epoch and the number of the next message")


def _owner_from_wire(owner: Any) -> dict[str, Any]:
    """Read an owner, and nothing but its five fields."""
    if not isinstance(owner, dict) or not is_name(owner.get("token")):
        raise FrameError("an owner has a token")
    try:
        identity = Identity.from_map(owner)
    except ValueError as error:
        raise FrameError(str(error)) from None
    if not is_name(identity.boot) or not is_name(identity.host):
        raise FrameError("an owner's boot and host are short texts")
    return {**identity.as_map(), "token": owner["token"]}


def number_of(message: Mapping[str, Any]) -> int:
    """Return a control request's number. Raises FrameError."""
    number = message.get("id")
    if number.__class__ is not int:
        raise FrameError("a request has a number, its id")
    return int(number)


def _is_count(value: Any) -> bool:
    return value.__class__ is int and value >= 0


def _is_plain_map(value: Any) -> bool:
    return value.__class__ is dict and _is_plain(value, HEADER_DEPTH_MAX)


def _is_plain(value: Any, depth: int) -> bool:
    """Say whether JSON can hold a value that came by msgpack."""
    kind = value.__class__
    if kind is dict:
        names = all(name.__class__ is str for name in value)
        return depth > 0 and names and all(_is_plain(each, depth - 1) for each in value.values())
    if kind is list:
        return depth > 0 and all(_is_plain(each, depth - 1) for each in value)
    return kind in (str, int, float, bool, type(None))
