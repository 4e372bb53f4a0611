"""The actors of turnkeeper and its face: writer, session, process supervisor, node, client and the opening of a runtime."""
