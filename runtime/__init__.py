"""The machinery of actors as such: mailboxes, references, supervision, processes and frames; it knows no journal."""
