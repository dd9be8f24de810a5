"""The data directory: which topics there are, which partitions are open, who looks after them.

A module imports only what stands above it:

    orphans            directories that belong to no topic
    reserve            room that is kept for a start on a full disk
    age_clock          the clock that ages are measured by
    unopened           retention and cleaning of partitions that nobody has opened
    relief             descriptors given back by what is open
    upkeep             who is looked after as time goes by, and how many at once
    opened_partitions  which partitions are open: opened once, by whoever asks first
    several_topics     a change of several topics, and what comes of each
    topic_registry     which topics there are: made, grown, altered, deleted
    start_room         how much room a start needs
    starting           what a data directory says before it is served
    ending             what an orderly stop says of the ends of logs
    manager            the data directory: DiskManager
    scrubbing          sealed segments read again and again, slowly
    cleaner            which partition is cleaned next, and how fast
"""
