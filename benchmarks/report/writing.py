"""A result's files: JSON as it is kept, Markdown, and an HTML page."""

from __future__ import annotations

from pathlib import Path

from .markdown import markdown_of
from .page import page_of
from .results import Result, save_result


def write_report(result: Result, name: str, out: Path) -> list[Path]:
    """Write all three to `out` by this name, and give their paths. Raises OSError."""
    save_result(result.as_map(), name, out)
    page, text = out / f"{name}.html", out / f"{name}.md"
    text.write_text(markdown_of(result), encoding="utf-8")
    page.write_text(page_of(result), encoding="utf-8")
    return [out / f"{name}.json", text, page]
