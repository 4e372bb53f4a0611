"""What a shell offers behind a command: the ids of the newest sessions. Looks at the store and never complains."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from .invocation import Invocation

ROWS_MAX = 1000


def complete_session(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the sessions whose ids begin like what was typed so far, the newest first, with their titles."""
    from .store_view import look_at

    try:
        with look_at(context.ensure_object(Invocation).store) as view:
            rows = view.ask(lambda reader: reader.rows(ROWS_MAX, kind="session"))
    except Exception:
        return []
    found = [row for row in rows if row.id.startswith(incomplete)]
    return [CompletionItem(row.id, help=row.summary.get("title") or None) for row in found]
