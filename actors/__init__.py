"""The actors of turnkeeper and its face: writer, session, node and client, and the opening of a runtime."""
