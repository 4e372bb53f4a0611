"""What a token costs that a model gives and a session writes, and into how few lines a stream of tokens is joined.

*A token*: 10,000 of them written as fast as the program can, a hundred before its loop gets a turn; the calls alone
count, beside writing each token as a line of its own into a buffered file, which keeps nothing. *A stream* of as many,
at a steady rate: how many events it became, beside one a token.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
import anyio.lowlevel
import orjson

from turnkeeper import Runtime, open_runtime

from ..measuring.asked_process import AskedProcess, answer_all
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of

TOKEN = "token "
TOKENS = 10_000
_TOKENS_A_TURN = 100
_TURN_SECONDS = 0.02


def compare_tokens(store: Path, per_second: int, rounds: int, tell: Tell, *, tokens: int = TOKENS) -> list[Run]:
    """Write tokens in bursts, and once as a stream of so many a second."""
    with AskedProcess(_write, store) as ours:
        ours.wait_ready()
        file = store.parent / "tokens.jsonl"
        measured = interleaved(
            rounds,
            {"ours": lambda: ours.ask("burst", tokens), "lines": lambda: _write_lines(file, tokens)},
            lambda line: tell(f"tokens: {line}"),
        )
        tell(f"a stream of {tokens:,} tokens, {per_second:,} a second")
        streamed: Figures = ours.ask("stream", tokens, per_second)
    burst = {"tokens": tokens, "token_bytes": len(TOKEN), "against": "a buffered line a token"}
    return [
        run_of("token us_a_token", burst, measured["ours"], measured["lines"], compared="us_a_token"),
        run_of(
            "token lines",
            {"tokens": tokens, "per_second": per_second, "against": "a line a token"},
            [streamed],
            [{"lines": tokens}],
            compared="lines",
        ),
    ]


def _write_lines(path: Path, tokens: int) -> Figures:
    with path.open("wb") as file:
        began = time.perf_counter()
        for _ in range(tokens):
            file.write(orjson.dumps({"type": "assistant/chunk", "text": TOKEN}, option=orjson.OPT_APPEND_NEWLINE))
        taken = time.perf_counter() - began
    return {"us_a_token": taken / tokens * 1e6, "lines": tokens}


# -- in the process whose session writes


def _write(starter: Connection, store: Path) -> None:
    anyio.run(_answer, starter, store, backend="trio")


async def _answer(starter: Connection, store: Path) -> None:
    async with open_runtime(store) as runtime:
        await answer_all(
            starter,
            {
                "burst": lambda tokens: _burst(runtime, tokens),
                "stream": lambda tokens, per_second: _stream(runtime, tokens, per_second),
            },
        )


async def _burst(runtime: Runtime, tokens: int) -> Figures:
    """Write tokens as fast as the loop goes; only the calls count."""
    spent = 0.0
    async with await runtime.create_session() as session:
        for first in range(0, tokens, _TOKENS_A_TURN):
            began = time.perf_counter()
            for _ in range(first, min(tokens, first + _TOKENS_A_TURN)):
                session.write(TOKEN)
            spent += time.perf_counter() - began
            await anyio.lowlevel.checkpoint()
        await session.flush()
        await _require(runtime, session.id, session.head, tokens)
        return {"us_a_token": spent / tokens * 1e6, "lines": session.head}


async def _stream(runtime: Runtime, tokens: int, per_second: int) -> Figures:
    """Write tokens by a timetable."""
    async with await runtime.create_session() as session:
        began, written = time.perf_counter(), 0
        while written < tokens:
            due = min(tokens, int((time.perf_counter() - began) * per_second))
            for _ in range(written, due):
                session.write(TOKEN)
            written = due
            await anyio.sleep(_TURN_SECONDS)
        seconds = time.perf_counter() - began
        await session.flush()
        await _require(runtime, session.id, session.head, tokens)
        return {"lines": session.head, "seconds": seconds}


async def _require(runtime: Runtime, session: str, lines: int, tokens: int) -> None:
    """Raise RuntimeError if not every token became durable, in the order in which they were written."""
    text = "".join([event.data["text"] for event in await runtime.read(session, limit=lines)])
    if text != TOKEN * tokens:
        raise RuntimeError(f"{len(text):,} characters of {tokens:,} tokens are stored")
