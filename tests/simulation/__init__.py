"""A broker, its clients, its network and its disk in one deterministic world: a seed is a run.

    world       chance and time of one seed, what happened, and the hash of that
    threads     threads, locks and queues that a schedule moves: greenlets, one at a time
    disk        a disk with a page cache, faults, and a power switch
    network     sockets with latency, short sends, small windows, cuts
    poller      who of many sockets can be received from: what the express way waits with
    tap         what passes on the wire: every request answered, in order, in time
    patches     puts all of it under the real broker and the real client
    process     a broker that can be drained, killed, cut off from power, and started again
    plan        what a seed does: topics, clients, faults
    history     what clients did and saw, and the anomalies in it
    clients     producers, consumers and administrators that write down what they did
    pipelines   producers of requests that do not wait for each other, on the wire
    groups      members of consumer groups, that join, commit, leave and die
    consumer_members  members of KIP-848 groups, on the wire
    streams_members  members of streams groups, as those of KIP-848 groups
    streams_kept  what is written down of streams groups is what they are
    wire        requests as they are, on simulated sockets
    shares      members of share groups, that accept, release, reject, keep for long and die
    share_ledger  what they are handed out, and what the broker takes from them
    transactions  producers of transactions, readers of what is committed
    ledger      what the broker tells members of groups, and takes from them
    holders     who may still read what in KIP-848 groups, and do what in streams groups, as far as
                the wire tells
    nemesis     the faults, while clients work
    meddler     somebody who removes or replaces files of the running broker
    verdict     the end: everything heals, is read once more, and is compared with the history
    run         one seed from start to verdict
    bugs        bugs planted to prove that the simulation finds them; bugs_groups,
                bugs_consumer_groups, bugs_streams_groups, bugs_express, bugs_shares: more of them
    planted     which seed finds a planted bug, asked for by its name

Nothing in it looks at the real clock, a real socket, a real disk or real chance, so a seed gives
the same trace every time, with the same PYTHONHASHSEED (`python -m tests.simulation` sets 0).
"""
