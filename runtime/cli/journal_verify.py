"""`turnkeeper journal verify`: look for damage, everywhere."""

from __future__ import annotations

import click

from turnkeeper.actors.client.asking import ask_writer_hello
from turnkeeper.actors.writer.scanning_files import scan_files
from turnkeeper.storage.backend import require_journal
from turnkeeper.storage.verify import Verification, verify

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .printing import places, print_figures, print_json
from .progress import byte_progress


@command("verify", example="turnkeeper journal verify --deep")
@click.option("--deep", is_flag=True, help="Parse every event, too.")
def verify_journal(invocation: Invocation, deep: bool) -> None:
    """Check every batch, every checksum, every blob that is named, and the index against the journal.

    Works while the store is served, while it isn't, and on a read-only copy; changes nothing. Many files are read on
    all cores, but for --deep. The exit code is 5 if
    anything is damaged. An unfinished write at the end is no damage: the next opening moves it aside.
    """
    store = invocation.store
    require_journal(store)
    hello = ask_writer_hello(store)
    with byte_progress("verifying") as progress:
        served_index = None if hello is None else hello["index"]
        found = verify(store, served_index, deep=deep, progress=progress, scan=scan_files)
    if invocation.is_json:
        print_json(found.as_map())
    else:
        _print(found)
    if found.damaged or not found.index_ok:
        raise _damaged(found, store)


def _print(found: Verification) -> None:
    figures = [
        ("segments", f"{found.segments:,}"),
        ("batches", f"{found.batches:,}"),
        ("events", f"{found.events:,}"),
        ("bytes", f"{found.bytes:,}"),
        ("blobs", f"{found.blobs:,}"),
        ("torn tail", "none" if found.torn_tail is None else str(found.torn_tail)),
        ("index", found.index_why or "fits the journal"),
        ("seconds", f"{found.seconds:.3f}"),
    ]
    print_figures([*figures, *(("damaged", str(finding)) for finding in found.damaged)])


def _damaged(found: Verification, store: str) -> Failure:
    streams = {stream for finding in found.damaged for stream in finding.streams}
    if not found.damaged:
        what, advice = "the index contradicts the journal", "turnkeeper journal rebuild makes it anew"
    else:
        concerned = f", of {', '.join(sorted(streams)[:5])}" if streams else ""
        what = f"damage in {places(len(found.damaged))}{concerned}{' and others' if len(streams) > 5 else ''}"
        advice = "everything else can be read: turnkeeper session show ID"
    return Failure("damaged", what, store, advice, told=True)
