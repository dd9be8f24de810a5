"""The transaction coordinator.

A module imports only what stands above it:

    transactions        its rules: a pure state machine
    producer_ids        each given once
    markers             the end of a transaction in its partitions
    transaction_table   the transactional ids in memory
    id_pattern          which of them an expression matches
    ledger              what stands: durable first, then in memory
    coordinator         what producers ask for, one id at a time
    query_batches       many transactions ended as one
    transaction_upkeep  transactions that nobody ends, ids that nobody uses
"""
