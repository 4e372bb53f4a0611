"""A store in one SQLite database: the small reference beside the journal, and its differential twin.

    store.json       what the store is, with `"backend": "sqlite"`; carries the lock
    store.sqlite     the database, with its -wal and -shm beside it while somebody writes
    blobs/           contents too large for a line, as beside a journal
    writer.json      who holds the lock, for people

One row an event, one transaction a commit, heads and epochs checked inside it. It shares the interface, the requests
and the errors with the journal, and no code that decides anything: what both answer alike was thought out twice.

What dies, and what it takes: the *process*: nothing that was answered. The *machine*: nothing that was answered; in a
store of durability `os`, the last commits. A database whose bytes were changed is refused as a whole or fails where it
is read: nothing here finds out what is missing, as the journal does.
"""

DATABASE_FILE = "store.sqlite"
