"""A benchmark's result: kept, judged, compared with another, and written as Markdown and as a page with plots."""
