"""Who waits for whom: connections, requests, replies, on one trio loop.

Nothing here opens a file or packs a struct: bytes belong to protocol/, files to segments/.
A module or package imports only what stands above it, and so do the modules of each package in its
own list:

    refused         a part of a request that is refused
    recording       what becomes of a control event
    tally           how often each api was asked for, and what failed
    error_map       errors of segments/, as the wire knows them
    principal       who somebody is
    address         host:port
    loop            one loop: its turns, deadlines, threads, and what may pile up in it
    configuration   what an operator may set
    limited_lines   lines of the log about what clients do again and again
    failed_reads    reads that the disk did not answer
    failed_changes  changes of groups and transactions that could not be stored
    partitions      topics and partitions as the loop sees them
    peers           who is at the other end: sockets, TLS, logins, replies in order
    access          who may do what, and how much of it
    groups          consumer groups of both protocols, and where they stand
    shares          records that the consumers of a share group work on
    transactions    the transaction coordinator
    core            what every request may need: the broker without its sockets
    settling        no change that was refused comes true later
    readiness       why the broker is not ready
    call            one request on its way through
    fetching        reads
    apis            the requests that are neither reads nor writes
    share_fetching  reads and acknowledgements of share groups
    guards          what each request needs to be allowed
    producing       writes, and the express way of plain ones
    vendor_apis     segbroker's own requests
    requests        from a frame to its handler
    connections     from bytes to frames; who is silent, stuck or a stranger
    chores          what is done again and again beside the requests
    metrics         the metrics page and the health pages, over HTTP
    reconfiguring   settings that were changed take effect
    assembling      the parts of a broker, each made of those before it
    server          opens the data directory, listens, serves, drains, closes
"""
