r"""The journal: numbered files of JSON lines that are the only truth, and an index that can be built anew from them.

Synchronous Python that starts no thread, opens no socket and imports no other area. A store directory is private to its
owner (0700, files 0600):

    store.json              what the store is; carries the lock (store.py, lock.py)
    journal/00000001.jsonl  segments, sealed at about 128 MiB
    index/<random>/         LMDB; delete it and nothing is lost (index.py, index_tables.py)
    index.json              which index may be trusted, and a witness of what was acknowledged (trust.py)
    blobs/<ab>/<digest>     contents too large for a line, by content (blobs.py)
    quarantine/             bytes cut from a torn tail, each with a note
    writer.json             who holds the lock, for people
    *.json.spare            space with which these two can be written anew on a full disk (spare_files.py)

A segment (format.py) holds batches. A batch is a header line and the event lines of many appends; it is written at
once, and the next one only when this one is on disk, so at most one is ever in flight. Behind the last batch lies
filling, newlines written ahead, so that a commit doesn't change the file's size.

    {"$segment":1,"format":1,"store":"…","created":…,"first":1,"h":"89abcdef"}
    {"$batch":41,"position":9077,"time":…,"bytes":812,"streams":[[ID,EPOCH,SEQ,EVENTS,BYTES,CRC(,PATCH)],…],"prev":"…",…}
    {"stream":"brave-otter-7f3a","seq":12,"time":…,"type":"turn/end","data":{…}}

Life of a store: `open_store_file` and `lock.take`; `Journal.open` (opening.py) judges the index, hops the headers
behind it (hopping.py, scanning.py; whole files in columns: file_scan.py), settles the end and writes the last batch
again; `Journal.commit` (journal.py) decides what goes into a batch (drafting.py), writes, syncs, indexes and answers;
`Journal.close` leaves an index that may be trusted. Readers (reading.py), `verify` (verify.py) and the survey of a
damaged stream (repair.py) work beside a writer and without one, and change nothing.

What dies, and what it takes: the *process*, at any instruction: nothing that was answered. The *machine*: nothing
that was answered. A disk that loses or changes bytes it had synced: what it lost, which is reported by segment,
offset, stream and number, while all that is good on both sides is served.

A store may be kept by SQLite instead (sqlite/): writer and readers know an interface (backend.py) that both have, and
what both owe is a suite that any backend can be held against (contract/).

Words that stay in here: a *run* is one stream's events in one batch, an *extent* is where a run lies, an *epoch* is
the number of an ownership of a stream (0 where nobody owns it, and anybody may post), and a *position* numbers events
over the whole store from 1.
"""
