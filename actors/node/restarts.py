"""When the node starts a process of its own again that has ended. Part of the node."""

from __future__ import annotations

from turnkeeper.runtime.restart import RestartPolicy

KILLED_POLICY = RestartPolicy(intensity=100, period_seconds=10.0, backoff_first=0.0, backoff_max=0.0)
"""For what somebody killed: started again at once."""

FAILED_POLICY = RestartPolicy(intensity=5, period_seconds=30.0, backoff_first=0.05, backoff_max=1.0)
"""For what ended by an error of the disk or of ours, or couldn't be started."""
