"""Blobs: contents too large for an event's line, each kept once under its digest, for as long as a run names it.

    blobs/<ab>/<digest>                  the content; digest is BLAKE2b-256 in hex, <ab> its first two digits
    blobs/<ab>/<digest>.<random>.tmp     one that is being written, or whose writer died
    blobs/keep                           while it is there nothing is collected (collecting.py)

Any process that has the store open may put one: it is written under a temporary name, synced, renamed, and its
directory synced, before an event that names it is sent. So whoever dies when, a name in the journal has its content;
what was put and never named is left over, and the writer alone removes it. A content that comes back is checked against
its digest, always. Files are never changed, only replaced by themselves.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b
from typing import Any

from .errors import BlobMissing, Corrupt, Failed, InvalidLine, StorageError, StoreFull, TooLarge
from .filesystem import FileSystem, LocalFileSystem
from .full_disk import lacks_space
from .limits import BLOB_BYTES_MAX, RESERVE_BYTES
from .store import BLOBS_DIRECTORY

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def digest_of(content: bytes) -> str:
    """Give the digest under which a content is kept."""
    return blake2b(content, digest_size=32).hexdigest()


def is_digest(text: object) -> bool:
    """Say whether this is the form of a digest: nothing else ever becomes a path."""
    return isinstance(text, str) and _DIGEST.match(text) is not None


def blob_path(digest: str) -> str:
    """Give the path of a blob, relative to the store. Raises ValueError for what is no digest."""
    if not is_digest(digest):
        raise ValueError(f"a blob's digest is 64 hexadecimal digits, not {digest!r:.80}")
    return f"{BLOBS_DIRECTORY}/{digest[:2]}/{digest}"


def put(root: str, content: bytes) -> str:
    """Keep a content in the store at `root`, once however often it is put; give its digest.

    When it returns the content outlives the machine's death, and for an hour at least nobody removes it though nothing
    names it. A file of that name whose content is damaged is replaced. Raises TooLarge, StoreFull (nothing was
    written), or Failed: put it again.
    """
    if len(content) > BLOB_BYTES_MAX:
        raise TooLarge("a blob", len(content), BLOB_BYTES_MAX)
    digest = digest_of(content)
    fs = LocalFileSystem(root)
    needed = RESERVE_BYTES + len(content)
    try:
        if not _is_kept(fs, digest):
            if fs.free_bytes() < needed:
                raise StoreFull(fs.free_bytes(), needed)
            _write(fs, digest, content)
        # Also for one that was there: whoever has written it may not have come to this yet.
        for directory in (f"{BLOBS_DIRECTORY}/{digest[:2]}", BLOBS_DIRECTORY, ""):
            fs.sync_directory(directory)
    except OSError as error:
        if lacks_space(error):
            raise StoreFull(fs.free_bytes(), needed) from None
        raise Failed(f"blob {digest} could not be written: {error}") from error
    return digest


def renew(root: str, digest: str) -> bool:
    """Say whether a blob is there, and keep it for an hour more though nothing names it. Doesn't look into it."""
    try:
        LocalFileSystem(root).touch(blob_path(digest))
    except OSError:
        return False
    return True


def get(root: str, digest: str, stream: str = "") -> bytes:
    """Read a blob, whole, and check it; `stream` is who names it, for the error's sake.

    Raises BlobMissing, Corrupt (naming the file), ValueError for what is no digest.
    """
    path = blob_path(digest)
    try:
        content = _read(LocalFileSystem(root), path)
    except FileNotFoundError:
        raise BlobMissing(stream, digest) from None
    except OSError as error:
        raise Corrupt(stream or f"blob {digest}", f"its blob can't be read ({error.strerror})", path) from None
    if content is None or digest_of(content) != digest:
        raise Corrupt(stream or f"blob {digest}", "its blob's bytes don't fit their digest", path)
    return content


def fault_of_names(fs: FileSystem, stream: str, seq: int, named: Any) -> StorageError | None:
    """Say why what is stored at `seq` can't name these blobs: they have to be there already. None if it can."""
    if not isinstance(named, list | tuple) or not all(map(is_digest, named)):
        return InvalidLine(stream, seq, "what it names as its blobs are no digests")
    missing = (digest for digest in named if not fs.exists(blob_path(digest)))
    return next((BlobMissing(stream, digest) for digest in missing), None)


def _is_kept(fs: LocalFileSystem, digest: str) -> bool:
    """Say whether a good file of this digest is there. It counts as put just now, before it is looked into."""
    path = blob_path(digest)
    try:
        fs.touch(path)
        content = _read(fs, path)
    except FileNotFoundError:
        return False
    return content is not None and digest_of(content) == digest


def _read(fs: FileSystem, path: str) -> bytes | None:
    """Read a file; None for one that is longer than any blob."""
    handle = fs.open(path)
    try:
        size = fs.size(handle)
        return None if size > BLOB_BYTES_MAX else fs.read(handle, 0, size)
    finally:
        fs.close(handle)


def _write(fs: FileSystem, digest: str, content: bytes) -> None:
    """Write a blob so that its name has its whole content or is not there, whenever this process ends."""
    path = blob_path(digest)
    fs.make_directory(BLOBS_DIRECTORY)
    fs.make_directory(f"{BLOBS_DIRECTORY}/{digest[:2]}")
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    handle = fs.open(temporary, create=True)
    try:
        try:
            fs.write(handle, 0, content)
            fs.sync(handle)
        finally:
            fs.close(handle)
        fs.replace(temporary, path)
    except BaseException:
        fs.remove(temporary)
        raise
