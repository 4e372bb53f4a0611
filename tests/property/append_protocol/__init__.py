"""An explicit-state model of the append protocol: how a line that was acknowledged stays stored, once, in order.

One stream, two clients, two places for a writer; everything the protocol says about a batch, a grant and an opening,
and everything that may go wrong between two of its steps. A journal's cell is a batch, and a batch holds one run of the
stream: a grant (a run without lines) or the lines of one epoch. The page cache and the disk are two journals; what is
in the first alone is dirty.

The story begins with one batch that is stored and acknowledged: client 0 owns the stream under epoch 1 and has begun a
turn. It wants to append ``a1`` and ``a2``; client 1 takes the stream over, closes the turn and wants to append ``b1``.
A client keeps what is not acknowledged and sends it again, split or merged at will, with one message under way on its
connection; what it sent on connections that are gone may still arrive, early or late, but no answer to it is heard.

``Rules`` has a switch for each rule: with all of them on no world that ``explore`` reaches breaks an ``Invariant``;
with any one off, a trace of fewer than twenty steps does. A power cut is not a step: its every outcome is judged in
every world (``power_cuts``).

What it leaves out: other streams and the positions they share, segments, refusals that have no part in the order of
things (too large, not JSON), and the life after a power cut, which begins with the journal alone. With the lock there
is one writer at a time, so the second place is used only without it. That nothing is stuck is judged by there being a
step to take, not by one being taken.
"""
