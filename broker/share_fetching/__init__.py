"""The requests of share groups about their records: what to work on, and what became of it.

A module imports only what stands above it:

    acknowledging      the acknowledgements of a request
    entering           which session a ShareFetch is of
    share_fetch        ShareFetch
    share_acknowledge  ShareAcknowledge
"""
