"""Who is at the other end of a connection, and the replies that it is owed.

A module imports only what stands above it:

    replies         they leave in the order of the requests
    bearer          what is said about a token
    sasl            one login
    tls             a TLS connection that reads and writes like a socket
    listener        bind, accept, the limit of connections
    fetch_session   what the fetches of a connection ask for, kept
    peer            all that requests see of it
    unanswered      how many partitions the fetches of all connections have
    long_answers    how much memory long answers may take, until they are sent
"""
