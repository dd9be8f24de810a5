"""Groups: of consumers, by the classic protocol and KIP-848's; share groups; streams groups.

State machines that are given the time, what is written down of them, and the one place that has
all of them.  A module imports only what stands above it:

    topic_regex         expressions that no text makes slow
    all_names           the names of all groups, bit by bit
    server_assignors    who reads which partition, decided here
    assignor_choice     ... decided by a member: by which assignor
    group_news group_lines                                  what is told of them in the log
    group_members group_rounds group                        the classic protocol
    member_epochs epochal_group     at which epoch a member may be; groups of such members
    consumer_members    members of KIP-848 groups
    topic_expressions viewers                               what their expressions match, for whom
    consumer_target consumer_group                          the target, and the group
    classic_members     classic members of such a group
    streams_topology streams_topics                         what an application reads, as tasks
    task_assignor streams_members streams_work              tasks, and whose they are
    streams_group streams_endpoints                         ... of one application
    kept_sizes kept_generations kept_ends                   what is written down, how large
    kept_members kept_consumers kept_streams                ... of members who take single steps
    kept_groups                                             all of that
    offset_events group_offsets offset_expiry               where groups stand
    share_reset group_keys group_settings                   settings of single groups
    group_upkeep        which there are, when each is forgotten
    group_start         groups that a start finds
    group_turning       from one protocol to the other, with members in it
    share_assignor share_group share_groups                 share groups (KIP-932)
    member_sizes member_room            how much all members say
    group_places        who leaves memory where there are too many
    groups              all of them
"""
