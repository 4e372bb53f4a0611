"""A session from its making or opening to its close: one process owns it and appends to it, and others send to it."""
