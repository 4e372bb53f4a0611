"""Actors asked by other processes: who has one serves it at a Unix socket, and who knows the socket has a reference.

What is said is frames (../frames.py). Maps are about the connection and can be read by every version, arrays are about
calls:

    both, first        {"protocol", "version", "pid"}, the server's with its actor's {"handlers"}; neither waits for it
    either, last       {"goodbye": reason}; the server, when its actor has ended, adds how:
                       {"ended": [reason, error or nil, normal]}

    the caller says    ["ask", n, method, arguments, keywords]   to be answered with the handler's reply
                       ["tell", n, method, arguments, keywords]  to be answered once it is in the mailbox
                       ["stop", n, seconds or nil]               to be answered once the actor has ended
                       ["kill", n]                               the same
                       ["call back", n]                          nobody waits for n any more
    the server says    ["waits", n]                              the mailbox is full; nothing has to be done
                       ["reply", n, value]
                       ["error", n, error]                       what the handler raised, as ../errors.py gives it
                       ["not started", n, reason], ["unknown", n, reason]
                       ["too large", n, size, limit, of which: "mailbox" or "frame"]
                       ["called back", n, whether it was in the mailbox]

`n` is the caller's number for a call. Calls of one connection come into the mailbox in the order in which they were
sent. A full mailbox makes the caller wait: the answer to a tell waits, and a caller has at most so many calls on their
way. Before a goodbye with an end everything that the server has read is answered, so what isn't was never begun.

Whatever isn't said here ends its connection with a reason; other connections, the actor and its process don't notice.
Only processes of the same user are talked to, on either side. Here nobody knows what a store is: the socket is given.
"""
