"""The journal's bytes on disk: synchronous Python that has no event loop, opens no socket and imports no other area."""
