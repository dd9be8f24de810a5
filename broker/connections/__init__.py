"""From bytes to frames, connection by connection, and the reasons to close one.

A module imports only what stands above it:

    login           what a client may ask before it has logged in
    inbox           what has been received and not handled yet, and the buffer that it is in
    connection      one connection: requests in order, replies in order
    handshakes      a limited number of unfinished logins
    watchdog        connections that are silent, stuck, or never begin
    admission       who comes in, and who is turned away
"""
