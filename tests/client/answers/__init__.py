"""Answers of a broker as they should not be, for every call of a client: see cases.

    deeds          what is done to an answer, or to its connection
    switchboard    the proxy that does it
    kits           the three clients as one
    story          the steps of one client, and what came of each
    producers consumers sharers administrators    stories
    cases          one of them with one deed, and the verdict

A module imports only what stands above it.
"""
