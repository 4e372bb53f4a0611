"""What programs see of each other over a store: events that are followed, messages, tokens."""
