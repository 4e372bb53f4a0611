"""A result's files: JSON as it is kept, Markdown, and an HTML page."""

from __future__ import annotations

from pathlib import Path

from .markdown import markdown_of
from .page import page_of
from .results import Result, json_of, save_texts


def write_report(result: Result, name: str, out: Path) -> list[Path]:
    """Write all three to `out` by this name, and give their paths. Raises OSError."""
    texts = {"json": json_of(result.as_map()), "md": markdown_of(result), "html": page_of(result)}
    written = {out / f"{name}.{ending}": text for ending, text in texts.items()}
    save_texts(written)
    return list(written)
