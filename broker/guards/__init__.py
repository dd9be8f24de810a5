"""What each request needs to be allowed, and what is answered when it is not.

A module imports only what stands above it:

    guarding        what guards are made of
    guards_cluster guards_groups guards_topics    by subject
    guards_share_groups guards_streams_groups guards_transactions guards_vendor    likewise
    authorized      all of them, by api
"""
