"""What the work on journal, sessions, tasks and actors set out to reach, each mark bound to the run that measures it.

Where one is missed, it says what stands in the way: a sentence by whoever has looked into it, to be kept true.
"""

from __future__ import annotations

from typing import Final

from .judging import Mark

LARGE: Final = 10_000_000

_STORED: Final = {"stored": LARGE}
_EVENTS: Final = {"events": LARGE}
_OUR_SQLITE: Final = "turnkeeper on SQLite"
_USUAL: Final = {"event_bytes": 460, "where": "loop", "durability": "fsync"}
_ALONE: Final = {**_USUAL, "sessions": 1, "load": "closed", "events_a_flush": 1, "against": "append"}
_CROWD: Final = {**_USUAL, "sessions": 100, "load": "closed", "events_a_flush": 1}
_TASKS: Final = {"live": 500}
_KILLS: Final = {"kills": 100}

_TWO_LOOPS: Final = (
    "The way to the writer and back is two event loops, 56 of the flush's microseconds; the sync is another 90 and the "
    "index 25."
)
_HOST_ENCODES: Final = (
    "The host is the limit: encoding an event and its bookkeeping take 3 µs of its one core. Where free memory was "
    "given back to a virtual machine's host, writing 256 KiB ahead takes 0.6 ms: 77,000/s, and else 91,000."
)
_WRITES_AHEAD: Final = (
    "Where free memory was given back to a virtual machine's host, writing 256 KiB ahead takes the writer 0.6 ms in "
    "place of 0.04, and the sync behind it 0.3: what waits meanwhile is the hundredth that p99 tells."
)
_SCANS: Final = (
    "A run a line makes a header for each event: scanning one takes 0.6 µs a core, parsing a line with orjson 0.8."
)
_LOOKS: Final = (
    "Each shim looks every two seconds at least whether its output is over the limit, or the disk full: 0.3 ms of a "
    "core in ten seconds. A watch would need an inotify instance for each, of which a user has 128."
)
_TWO_CORES: Final = "Checksums of all bytes take most of it, and here are two cores."

MARKS: Final = (
    Mark(
        "journal",
        "flush of one session on trio, p50 over append + fdatasync",
        "flush p50_ms",
        {**_ALONE, "loop": "trio"},
        at_most=1.6,
        size=_STORED,
        hindered=_TWO_LOOPS,
    ),
    Mark(
        "journal",
        "… its p99 over that of append + fdatasync",
        "flush p99_ms",
        {**_ALONE, "loop": "trio"},
        at_most=2.5,
        size=_STORED,
        hindered=_TWO_LOOPS,
    ),
    Mark(
        "journal",
        "flush of one session on asyncio, p50 over append + fdatasync",
        "flush p50_ms",
        {**_ALONE, "loop": "asyncio"},
        at_most=1.8,
        size=_STORED,
        hindered=_TWO_LOOPS,
    ),
    Mark(
        "journal",
        "… its p99 over that of append + fdatasync",
        "flush p99_ms",
        {**_ALONE, "loop": "asyncio"},
        at_most=3,
        size=_STORED,
        hindered=_TWO_LOOPS,
    ),
    Mark(
        "journal",
        "100 sessions, closed: events/s over our SQLite backend's",
        "flush per_second",
        {**_CROWD, "against": _OUR_SQLITE},
        at_least=2.5,
        size=_STORED,
        hindered=_HOST_ENCODES,
    ),
    Mark(
        "journal",
        "… over one SQLite transaction a flush",
        "flush per_second",
        {**_CROWD, "against": "sqlite"},
        at_least=12,
        size=_STORED,
        hindered=_HOST_ENCODES,
    ),
    Mark(
        "journal",
        "… over one file a session + fdatasync",
        "flush per_second",
        {**_CROWD, "against": "files"},
        at_least=12,
        size=_STORED,
        hindered=_HOST_ENCODES,
    ),
    Mark(
        "journal",
        "1,000 sessions at 5,000/s: p99 over that of append + fdatasync",
        "flush p99_ms",
        {**_USUAL, "sessions": 1_000, "planned_per_second": 5_000, "events_a_flush": 1, "against": "append"},
        at_most=5,
        size=_STORED,
        hindered=_WRITES_AHEAD,
    ),
    Mark(
        "journal",
        "ten events a flush, 100 sessions: events/s over our SQLite backend's",
        "flush per_second",
        {**_CROWD, "events_a_flush": 10, "against": _OUR_SQLITE},
        at_least=3,
        size=_STORED,
        hindered=_HOST_ENCODES,
    ),
    Mark(
        "journal",
        "opening after kill -9, warm: 10,000,000 events over 100,000",
        "open",
        {"cache": "warm"},
        at_most=1.3,
        size=_EVENTS,
    ),
    Mark("journal", "… cold", "open", {"cache": "cold"}, at_most=1.3, size=_EVENTS),
    Mark("journal", "… milliseconds, warm", "open", {"cache": "warm"}, figure="open_ms", at_most=20, size=_EVENTS),
    Mark(
        "journal",
        "rebuild over parsing with orjson, ten events a run",
        "rebuild per_second",
        {"run_events": 10},
        at_least=3,
        size=_EVENTS,
    ),
    Mark(
        "journal",
        "… one event a run",
        "rebuild per_second",
        {"run_events": 1},
        at_least=3,
        size=_EVENTS,
        hindered=_SCANS,
    ),
    Mark(
        "journal",
        "… anonymous memory in MB",
        "rebuild per_second",
        {"run_events": 1},
        figure="anonymous_mb",
        at_most=300,
        size=_EVENTS,
    ),
    Mark(
        "journal",
        "verify over parsing with orjson, ten events a run",
        "verify per_second",
        {"run_events": 10},
        at_least=6,
        size=_EVENTS,
        hindered=_TWO_CORES,
    ),
    Mark(
        "journal",
        "… one event a run",
        "verify per_second",
        {"run_events": 1},
        at_least=6,
        size=_EVENTS,
        hindered=_SCANS,
    ),
    Mark(
        "journal",
        "last 50 events of a session of 100,000, warm, in ms",
        "load last p50_ms",
        figure="p50_ms",
        at_most=1,
        size=_STORED,
    ),
    Mark(
        "journal", "a cold session of 5,000 scattered events over its bytes", "load whole ms", at_most=2, size=_STORED
    ),
    Mark(
        "journal",
        "bytes on disk over those of the lines: ten events of a session",
        "disk bytes_an_event",
        {"batch": "10 events of 1 session"},
        at_most=1.06,
    ),
    Mark(
        "journal",
        "… an event of each of ten sessions",
        "disk bytes_an_event",
        {"batch": "10 events of 10 sessions"},
        at_most=1.15,
    ),
    Mark("journal", "… a single event", "disk bytes_an_event", {"batch": "a single event"}, at_most=1.45),
    Mark(
        "journal",
        "the writer's memory at 1,000 sessions over ten minutes: slope in KiB a minute, told from none",
        "memory end over begin",
        figure="slope_kib_a_minute",
        at_most=0,
        size={"sessions": 1_000, "seconds": 600},
        bound="low",
    ),
    Mark(
        "sessions",
        "newest 20 of 100,000 sessions, warm, in ms",
        "list newest p50_ms",
        figure="p50_ms",
        at_most=20,
        size={"sessions": 100_000},
    ),
    Mark(
        "sessions",
        "a prefix of an id resolved among 100,000, in ms",
        "list prefix p50_ms",
        figure="p50_ms",
        at_most=5,
        size={"sessions": 100_000},
    ),
    Mark(
        "sessions",
        "a key resolved among 100,000, in ms",
        "list key p50_ms",
        figure="p50_ms",
        at_most=5,
        size={"sessions": 100_000},
    ),
    Mark(
        "sessions",
        "fork of a session of 1,000,000 events, in ms",
        "fork head p50_ms",
        figure="p50_ms",
        at_most=5,
        size={"events": 1_000_000},
    ),
    Mark(
        "sessions",
        "… bytes that it takes",
        "fork head p50_ms",
        figure="bytes",
        at_most=4096,
        size={"events": 1_000_000},
    ),
    Mark(
        "sessions",
        "opening with a snapshot, session of 1,000,000 events, in ms",
        "resume p50_ms",
        {"events": 1_000_000},
        figure="p50_ms",
        at_most=50,
    ),
    Mark("sessions", "a token written, in µs", "token us_a_token", figure="us_a_token", at_most=5),
    Mark(
        "sessions",
        "lines of a stream of 10,000 tokens, 1,000 a second",
        "token lines",
        figure="lines",
        at_most=100,
        size={"tokens": 10_000},
    ),
    Mark(
        "sessions",
        "send to accepted by an idle owner in another process, p50 over a flush",
        "send to accepted p50_ms",
        at_most=3,
    ),
    Mark(
        "tasks",
        "start to running beside 500 live tasks, p50 in ms",
        "task start p50_ms",
        figure="p50_ms",
        at_most=10,
        size=_TASKS,
    ),
    Mark("tasks", "… over Popen + wait of python3 -S -c pass", "task start p50_ms", at_most=1, size=_TASKS),
    Mark(
        "tasks",
        "spawner and shims at 500 idle tasks, KB of PSS a task",
        "idle task",
        figure="pss_kb",
        at_most=1_200,
        size=_TASKS,
    ),
    Mark(
        "tasks",
        "… their processor time, in % of a core",
        "idle task",
        figure="tasks_cpu_percent",
        at_most=0.1,
        size=_TASKS,
        hindered=_LOOKS,
    ),
    Mark(
        "tasks",
        "the node's memory, KB a finished task",
        "node's memory end over begin",
        figure="kb_a_task",
        at_most=4,
        size={"tasks": 1_000},
    ),
    Mark(
        "tasks",
        "end of a task to the waiter awake, p99 in ms",
        "waiter awake p99_ms",
        figure="p99_ms",
        at_most=20,
        size=_TASKS,
    ),
    Mark(
        "tasks",
        "10 GB of output through one task: memory at its end over its beginning",
        "memory during output, end over begin",
        at_most=1.05,
        size={"output_bytes": 10_000_000_000},
    ),
    Mark(
        "tasks",
        "1,000 short tasks a minute: zombies left",
        "short tasks ended well over planned",
        figure="zombies",
        at_most=0,
        size={"planned_per_minute": 1_000},
    ),
    Mark(
        "tasks",
        "… ended well over planned",
        "short tasks ended well over planned",
        at_least=1,
        size={"planned_per_minute": 1_000},
    ),
    Mark("tasks", "stop of 500 trees, in s", "stop of trees", figure="stop_s", at_most=2, size={"trees": 500}),
    Mark(
        "actors",
        "tell in the loop over a memory channel of trio",
        "tell in the loop, us_a_tell",
        {"loop": "trio", "against": "a memory channel of trio"},
        at_most=3,
    ),
    Mark(
        "actors",
        "… on asyncio",
        "tell in the loop, us_a_tell",
        {"loop": "asyncio", "against": "a memory channel of trio"},
        at_most=3,
    ),
    Mark(
        "actors",
        "ask to a worker process over a ping-pong of msgpack on a Unix socket",
        "ask a worker, p50_us",
        {"loop": "trio", "against": "msgpack over a Unix socket"},
        at_most=2,
    ),
    Mark(
        "actors",
        "… on asyncio",
        "ask a worker, p50_us",
        {"loop": "asyncio", "against": "msgpack over a Unix socket"},
        at_most=2,
    ),
    Mark(
        "actors",
        "a session actor killed in its turn, until it is restarted, has its session and has appended, p50 in ms",
        "killed session actor goes on, p50_ms",
        figure="p50_ms",
        at_most=300,
        size=_KILLS,
    ),
    Mark(
        "actors",
        "… events lost of those that were durable",
        "killed session actor goes on, p50_ms",
        figure="lost_events",
        at_most=0,
        size=_KILLS,
    ),
    Mark(
        "actors",
        "… turns left open",
        "killed session actor goes on, p50_ms",
        figure="open_turns",
        at_most=0,
        size=_KILLS,
    ),
)
"""All marks, in the order in which they were set."""
