"""The requests that are neither reads nor writes: what is asked, looked up or done, and answered.

A module imports only what stands above it:

    metadata            which topics there are, who leads them
    cluster placement feature_levels    the cluster of one
    config_rows         settings, as DescribeConfigs lists them
    logger_admin        the level of the log
    config_admin        settings read and changed
    topic_admin         topics made, grown, deleted; records deleted
    inventory           topics in pages, sizes on disk
    acl_apis user_apis quota_apis sasl_apis             access
    later_reply         answers that wait for others or for the disk
    sign_of_life        when a member has said what it says
    kept_answers        answers to members that wait until what they tell is durable
    mixed_groups        classic members in KIP-848 groups
    member_rows         what members subscribe to and read, in rows
    group_admin group_apis consumer_group_apis share_group_apis offset_store    groups
    streams_requests internal_topics streams_group_apis streams_descriptions    streams groups
    share_offset_apis   where share groups stand
    transaction_apis marker_apis transaction_queries    transactions
    batch_commits       many transactions committed as one
    floors              floors and gaps
    partition_statistics    state of partitions, in pages
    answer_sizes        how large an answer will be, before it is made
"""
