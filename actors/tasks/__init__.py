"""Tasks: child processes of a store, whose ends are never lost. The node's side, the client's, and what both know."""
