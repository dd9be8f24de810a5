"""The `segbroker` command: the only room that prints.

Data goes to standard output, everything else to standard error.  A subcommand's module is
imported when it is called, and imports the client, the broker or rich when it runs: `segbroker
version` and shell completion stay fast.

What is where; a module imports only what stands above it:

    exit_codes       what the exit code says; the one table
    standard_error   lines for the person who looks, or nowhere; the log of offline work
    standard_output  data; its errors name it
    failures         an exception -> one sentence, a hint, an exit code
    properties       -X: TLS and login by Kafka's names, secrets from a variable or a file
    contexts         brokers with their properties, stored by name
    other_words      words of other tools: which of ours is meant
    stop_signal      Ctrl-C for produce: first what was read is delivered; what ends at once
    command          what every subcommand has: -b, --debug, quiet ends (Ctrl-C, closed pipe)
    asking           questions before something is deleted, and --yes
    directory_owner  what root makes in a data directory of another user is his
    tables           columns by spaces
    words            numbers as a person reads them: counts, times, sizes
    unserved         partitions that the broker does not serve
    escapes          \\n \\t \\xXX in arguments
    start_position   -o start | end | OFFSET | -N | @TIME
    record_format    -f and -J: a record -> bytes
    lines            standard input -> lines, binary safe, as they arrive
    line_ranges      which lines were not delivered, in few words
    closed_pipe      the reader of our output went away
    absence          what the client says of a broker that is away
    progress         a counter on standard error, on a terminal only
    durability       what each durability class can lose, in words
    batch_limit      what to say of a topic that refuses usual batches
    retention        what is kept, in words
    dump_report      what a file says, for people and as JSON
    log_dump         a segment's log -> report
    index_dump       its index
    manifest_dump    the manifest of a partition
    state_dump       producer state, metadata snapshot
    wal_dump         a file of the write-ahead log
    service_manager  systemd hears of a start and an end
    serve            the subcommands, one module each
    produce
    consume_share    consume --share
    consume
    topic_facts      what is said of topics
    topic
    trim
    group_lag        how far a group is behind, in records and seconds
    group
    acl
    quota
    broker_status    how a broker is doing, in words
    broker
    user
    context
    spark_failures   what an error of Spark says, in a sentence
    spark_rows       rows of a query -> a table, JSON
    spark_session    Spark for one command: start, interrupts, end, its JVM
    spark
    verify
    dump
    version
    completion
    main             the table of subcommands
    __main__         the console script, python -m segbroker.cli
"""
