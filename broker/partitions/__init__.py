"""Topics and partitions as the loop sees them.

A module imports only what stands above it:

    isolation       what readers of committed records see
    refusals        what was refused for a reason that passes, so that nothing overtakes it
    partition       one served partition, and who waits for its high watermark
    topics          what exists, what is served, and how either changes
    topic_ids       requests that name topics by id
"""
