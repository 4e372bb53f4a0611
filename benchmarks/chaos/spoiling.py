"""What is done to the files of a store that nobody has open: its index, and the journal of a copy."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from random import Random

PAGES_BYTES = 8192
"""LMDB's two first pages, which say where all others are."""

FLIPS_MAX = 5
TAIL_BYTES_MAX = 3000

SEALED_SHARE = 0.5
"""So often it is a sealed segment whose end is cut off, where there is one: nothing is lost there unnoticed."""


def delete_index(store: Path, random: Random) -> str:
    """Delete the index, with the record that names it or without; say what was done."""
    shutil.rmtree(store / "index", ignore_errors=True)
    if random.random() < 0.5:
        (store / "index.json").unlink(missing_ok=True)
        return "the index and its record are gone"
    return "the index is gone"


def damage_index(store: Path, random: Random) -> str:
    """Damage the index in place, so that nothing tells but what stands in it; say how."""
    how = random.choice(("zeroed", "flipped", "cut", "first pages", "noise"))
    for path in (store / "index").glob("*/data.mdb"):
        content = bytearray(path.read_bytes())
        rest_bytes = max(0, len(content) - PAGES_BYTES)  # who made it may have been killed before it was filled
        if how == "zeroed":
            content[PAGES_BYTES:] = bytes(rest_bytes)
        elif how == "flipped":
            for place in range(PAGES_BYTES, len(content), 97):
                content[place] ^= 0xFF
        elif how == "cut":
            del content[PAGES_BYTES:]
        elif how == "first pages":
            content[16:PAGES_BYTES] = random.randbytes(PAGES_BYTES - 16)
        else:
            content[PAGES_BYTES:] = random.randbytes(rest_bytes)
        with path.open("r+b") as file:  # the same file, by all that its record says of it
            file.write(content)
            file.truncate(len(content))
    return how


def flip_bytes(store: Path, random: Random) -> str:
    """Flip some bits in the journal, each in any line, short or long, but not in the filling at its end; say where."""
    (path,) = random.choices(sorted((store / "journal").glob("*.jsonl")))
    content = bytearray(path.read_bytes())
    lines = [line.span() for line in re.finditer(rb"[^\n]+\n?", content)]
    places = sorted({random.randrange(*line) for line in random.choices(lines, k=random.randint(1, FLIPS_MAX))})
    for place in places:
        content[place] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"bytes {places} of {path.name}"


def cut_tail(store: Path, random: Random) -> str:
    """Cut off the journal's end, in the middle of something, or that of a file before the last; say how much."""
    *sealed, path = sorted((store / "journal").glob("*.jsonl"))
    if sealed and random.random() < SEALED_SHARE:
        path = random.choice(sealed)
    content = path.read_bytes().rstrip(b"\n") + b"\n"
    cut = random.randint(1, min(TAIL_BYTES_MAX, len(content) - 1))
    path.write_bytes(content[:-cut])
    return f"{cut} bytes of {path.name}"
