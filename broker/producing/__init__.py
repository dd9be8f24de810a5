"""Writes: the general way, the way of requests with one batch, the express way of many connections.

A module imports only what stands above it:

    appending       what a partition asks of a batch
    implicit_adds   taking part in a transaction by writing
    remaking        batches that are compressed otherwise, or stamped, before they are appended
    produce         any request
    single_produce  one batch for one partition
    seat            a connection's place on the express way
    exchange_pure   receiving from many connections and answering them: the specification
    exchange        ... by the C kernel where there is one
    produce_run     such requests of several connections, appended with one write
    lone            one such request of who is alone, in one go
    intake          what a pass receives, and takes up
    express         the passes over all that are parked there
"""
