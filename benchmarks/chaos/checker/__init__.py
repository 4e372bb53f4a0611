"""The oracle of chaos: says of a round which promises were broken, from what lies on disk and what was noted outside.

It shares no code with the product, and asks nothing of it: it parses the journal's lines, or the tables of a store that
SQLite keeps, by itself (journal.py, database.py). All of it is read once into plain values (evidence.py), and each
promise is one pure function over them (numbering, sending, turns, messages, lineage, followers, tasks, leftovers). A
violation says which promise, of what, and how it was broken; the lines of the journal and the notes around it come with
it (surroundings.py).

Faults that may lose something are done to copies. What they may cost is computed from the bytes (losses.py): all else
must be read as before, and what is lost must be reported; a copy is never silently shorter.
"""
