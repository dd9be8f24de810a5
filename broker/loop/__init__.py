"""One trio loop: what it does at the end of a turn, when, in which threads, and how much may wait.

Nothing here knows a request or a topic.  A module imports only what stands above it:

    pace            a long loop gives way when it has had its time
    callbacks       how threads reach the loop
    loop_clock      its clock, in ms
    deadlines       one heap of them, one task
    alarms          ... of which each owner has one
    turn            what one receive, one sync or one tick completed is sent at its end, once
    together        calls that wait for the same lock are made as one
    tasks           tasks that live as long as the broker serves
    loop_time       how long the loop was busy
    long_lived      what stays is kept from the collector of cycles
    ingest          how much may be appended before the disk has caught up
    address_line    addresses take turns
    half_requests   ... for the memory of requests that are not whole yet
    address_turns   ... with work of which only so much is done at once, and each has a share
    thread_job      what a thread does for a task
    workers         threads that are there from the start
    lanes           ... in which everything runs that may block on a disk
    address_threads ... with what is computed in threads
    strangers       ... who has not logged in yet
    large_requests  how much memory may be taken by what they are decoded to
    pool            buffers of fetch replies
"""
