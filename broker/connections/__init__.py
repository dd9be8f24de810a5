"""From bytes to frames, connection by connection, and who is closed because of what.

A module imports only what stands above it:

    login           what a stranger may ask
    connection      one connection: requests in order, replies in order
    handshakes      a limited number of strangers
    watchdog        who is silent, stuck, or never begins
"""
