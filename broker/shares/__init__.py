"""Share groups (KIP-932): records that the consumers of a group share, one by one.

A module imports only what stands above it:

    pieces             records with one fate, and what is asked and told of them: values
    share_partition    what became of each record of one group in one partition: pure
    fetched            the batches of a read: which offsets hold records for a reader
    offset_reset       where a group begins that is new to a partition
    share_events       what is kept, in events of limited size
    reply_budget       how many bytes are on their way to readers
    share_session      which partitions a member fetches from, over requests
    live_partition     one group in one partition: who works on it, who waits
    beginnings         where groups begin in partitions that are new to them, written down together
    taking_back        records whose lock or session has ended become available again
    shares             all of them: kept as control events, locks that end, who waits
"""
