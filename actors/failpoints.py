"""The failpoints of node and writer: their names, and where they are (see `turnkeeper.runtime.failpoints`).

They stand around what has to be done in one order and can be left undone by a death in between: write, sync, index,
answer; a task's directory, its record, its shim, the record of its end.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnkeeper.runtime.tasks.failpoints import SHIM, SPAWNER

OF_ANY_WRITER: Mapping[str, str] = {
    "writer-took-requests": "before turnkeeper.actors.writer.writer:Writer._commit",
    "writer-answered": "behind turnkeeper.actors.writer.writer:Writer._answer_appends",
    "writer-granted": "behind turnkeeper.actors.writer.writer:Writer._answer_control",
}

OF_JOURNAL: Mapping[str, str] = {
    "writer-writes": "before turnkeeper.storage.filesystem:LocalFileSystem.write",
    "writer-wrote": "behind turnkeeper.storage.filesystem:LocalFileSystem.write",
    "writer-syncs": "before turnkeeper.storage.filesystem:LocalFileSystem.sync",
    "writer-synced": "behind turnkeeper.storage.filesystem:LocalFileSystem.sync",
    "writer-indexes": "before turnkeeper.storage.journal:Journal._index_batch",
    "writer-indexed": "behind turnkeeper.storage.journal:Journal._index_batch",
    "writer-committed": "behind turnkeeper.storage.journal:Journal.commit",
    "writer-filled": "behind turnkeeper.storage.journal:Journal._fill",
    "writer-settles-end": "before turnkeeper.storage.opening:_Opening._settle",
    "writer-settled-end": "behind turnkeeper.storage.opening:_Opening._settle",
    "writer-closes": "before turnkeeper.storage.journal:Journal.close",
}

OF_ROLLING: Mapping[str, str] = {
    "writer-rolls": "before turnkeeper.storage.journal:create_segment",
    "writer-names-segment": "before turnkeeper.storage.filesystem:LocalFileSystem.rename",
    "writer-named-segment": "behind turnkeeper.storage.filesystem:LocalFileSystem.rename",
    "writer-rolled": "behind turnkeeper.storage.journal:create_segment",
    "writer-cuts-filling": "before turnkeeper.storage.filesystem:LocalFileSystem.truncate",
    "writer-cut-filling": "behind turnkeeper.storage.filesystem:LocalFileSystem.truncate",
}
"""Passed where a journal gets another segment: a writer with usual limits comes there only after much work."""

OF_SQLITE: Mapping[str, str] = {
    "writer-opens-database": "before turnkeeper.storage.sqlite.writing:open_to_write",
    "writer-opened-database": "behind turnkeeper.storage.sqlite.writing:open_to_write",
    "writer-transacts": "before turnkeeper.storage.sqlite.writing:SqliteStore._transact",
    "writer-transacted": "behind turnkeeper.storage.sqlite.writing:SqliteStore._transact",
    "writer-moves-log": "before turnkeeper.storage.sqlite.writing:SqliteStore.between_commits",
    "writer-moved-log": "behind turnkeeper.storage.sqlite.writing:SqliteStore.between_commits",
    "writer-closes-database": "before turnkeeper.storage.sqlite.writing:SqliteStore.close",
}

WRITER: Mapping[str, str] = {**OF_ANY_WRITER, **OF_JOURNAL, **OF_ROLLING, **OF_SQLITE}

NODE: Mapping[str, str] = {
    "node-starts-writer": "before turnkeeper.actors.launch:start_writer",
    "node-started-writer": "behind turnkeeper.actors.launch:start_writer",
    "node-made-task": "behind turnkeeper.runtime.tasks.directory:make",
    "node-recorded": "behind turnkeeper.actors.node.tasks.recorder:Recorder.record",
    "node-hands-over": "before turnkeeper.actors.node.tasks.spawner_keeper:SpawnerKeeper.hand_over",
    "node-records-end": "before turnkeeper.actors.node.tasks.live_task:LiveTask._record_end",
    "node-read-file-of-task": "behind turnkeeper.runtime.tasks.directory:read_map",
    "node-asks-for-lock-of-task": "before turnkeeper.runtime.tasks.directory:is_lock_held",
    "node-asked-for-lock-of-task": "behind turnkeeper.runtime.tasks.directory:is_lock_held",
    "node-started-spawner": "behind turnkeeper.actors.node.tasks.spawner_keeper:start_spawner",
}

POINTS: Mapping[str, tuple[str, ...]] = {
    "writer": tuple(WRITER),
    "node": tuple(NODE),
    "spawner": tuple(SPAWNER),
    "shim": tuple(SHIM),
}
"""The names by the role of the process that has them."""


def limits_of(part_bytes: int) -> dict[str, int]:
    """Give the limits of a writer whose store is in small parts: a segment, or what SQLite's log holds, has so many.

    A journal of a few segments is then scanned by processes, as a large one is.
    """
    return {
        "turnkeeper.storage.journal:SEGMENT_BYTES": part_bytes,
        "turnkeeper.actors.writer.scanning_files:PARALLEL_BYTES_MIN": 3 * part_bytes,
        "turnkeeper.storage.sqlite.writing:CHECKPOINT_BYTES": part_bytes,
    }
