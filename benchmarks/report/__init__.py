"""What a benchmark's result looks like: Markdown tables, and an HTML page with plots; both of the kept result alone."""
