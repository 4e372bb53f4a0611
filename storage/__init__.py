"""The journal's bytes on disk: synchronous Python without an event loop, sockets or anything of ours from outside this area."""
