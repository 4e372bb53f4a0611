"""The failpoints of node and writer: their names, and where they are (see `turnkeeper.runtime.failpoints`).

They stand around what has to be done in one order and can be left undone by a death in between: write, sync, index,
answer; a task's directory, its record, its shim, the record of its end.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnkeeper.runtime.tasks.failpoints import SHIM, SPAWNER

WRITER: Mapping[str, str] = {
    "writer-took-requests": "before turnkeeper.actors.writer.writer:Writer._commit",
    "writer-writes": "before turnkeeper.storage.filesystem:LocalFileSystem.write",
    "writer-wrote": "behind turnkeeper.storage.filesystem:LocalFileSystem.write",
    "writer-syncs": "before turnkeeper.storage.filesystem:LocalFileSystem.sync",
    "writer-synced": "behind turnkeeper.storage.filesystem:LocalFileSystem.sync",
    "writer-indexes": "before turnkeeper.storage.journal:Journal._index_batch",
    "writer-indexed": "behind turnkeeper.storage.journal:Journal._index_batch",
    "writer-committed": "behind turnkeeper.storage.journal:Journal.commit",
    "writer-answered": "behind turnkeeper.actors.writer.writer:Writer._answer_appends",
    "writer-granted": "behind turnkeeper.actors.writer.writer:Writer._answer_control",
    "writer-filled": "behind turnkeeper.storage.journal:Journal._fill",
    "writer-settles-end": "before turnkeeper.storage.opening:_Opening._settle",
    "writer-settled-end": "behind turnkeeper.storage.opening:_Opening._settle",
    "writer-closes": "before turnkeeper.storage.journal:Journal.close",
}

NODE: Mapping[str, str] = {
    "node-starts-writer": "before turnkeeper.actors.launch:start_writer",
    "node-started-writer": "behind turnkeeper.actors.launch:start_writer",
    "node-made-task": "behind turnkeeper.runtime.tasks.directory:make",
    "node-recorded": "behind turnkeeper.actors.node.tasks.recorder:Recorder.record",
    "node-hands-over": "before turnkeeper.actors.node.tasks.spawner_keeper:SpawnerKeeper.hand_over",
    "node-records-end": "before turnkeeper.actors.node.tasks.live_task:LiveTask._record_end",
    "node-read-file-of-task": "behind turnkeeper.runtime.tasks.directory:read_map",
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
