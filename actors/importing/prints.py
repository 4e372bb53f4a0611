"""Fingerprints by which repeated content is recognised, sets of them, and the keys of records."""

from __future__ import annotations

from array import array
from collections import Counter
from hashlib import blake2b
from typing import Any

from turnkeeper.storage.exact_json import encode_data

_ID_CHARACTERS_MAX = 128
_FIRST_SLOTS = 1024  # a power of two
_MASK = 2**64 - 1


def fingerprint(value: dict[str, Any]) -> int:
    """Return 64 bits of a digest of what `value` says; the order of its keys counts."""
    return int.from_bytes(blake2b(encode_data("", value), digest_size=8).digest(), "big")


class Prints:
    """A set of evenly spread 64-bit numbers in 12 to 24 bytes each.

    A built-in set of all that a long session says would be several times as big. Open addressing with
    linear probing; 0 marks a free slot.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))
        self._count = 0

    def __contains__(self, number: int) -> bool:
        return self._slots[self._place(self._slots, number & _MASK or 1)] != 0

    def add(self, number: int) -> bool:
        """Add a number, such as a hash; return whether it is new."""
        number = number & _MASK or 1
        place = self._place(self._slots, number)
        if self._slots[place]:
            return False
        self._slots[place] = number
        self._count += 1
        if self._count * 3 > len(self._slots) * 2:
            self._grow()
        return True

    def _grow(self) -> None:
        wider = array("Q", bytes(8 * 2 * len(self._slots)))
        for number in self._slots:
            if number:
                wider[self._place(wider, number)] = number
        self._slots = wider

    @staticmethod
    def _place(slots: array[int], number: int) -> int:
        """Return where the number stands, or the free slot where it would."""
        mask = len(slots) - 1
        place = number & mask
        while (found := slots[place]) and found != number:
            place = (place + 1) & mask
        return place


class RecordKeys:
    """The keys of one session's records, in the order of the file.

    A record with an id of its own is named by it. Another record of the same id is told apart by its bytes; one that
    has the same bytes too is a repetition. A record without an id is named by its bytes and by how often they came.
    """

    def __init__(self, format: str) -> None:
        self._format = format
        self._ids = Prints()
        self._raws = Prints()
        self._repetitions: Counter[bytes] = Counter()

    def key(self, raw: bytes, id: object) -> str | None:
        """Return the key of the next record, None if it is a repetition."""
        digest = blake2b(raw, digest_size=12).digest()
        is_new = self._raws.add(int.from_bytes(digest[:8], "big"))
        if not isinstance(id, str) or not 0 < len(id) <= _ID_CHARACTERS_MAX:
            if not is_new:
                self._repetitions[digest] += 1
            return f"{self._format}#{digest.hex()}.{self._repetitions[digest]}"
        if not is_new:
            return None
        return f"{self._format}:{id}" if self._ids.add(hash(id)) else f"{self._format}~{digest.hex()}:{id}"
