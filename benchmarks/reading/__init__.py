"""What reading costs: a session, lists of them, a fork, going on from a snapshot."""
