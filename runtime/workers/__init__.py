"""Actors in worker processes of their own: the host's side, and the process's (worker_main.py)."""
