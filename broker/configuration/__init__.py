"""What an operator may set: at the start, and while the broker runs.

A module imports only what stands above it:

    config_key              a key: default, meaning, bounds, its name in Kafka
    config_access config_groups config_limits config_listening config_machine
    config_metrics config_topics
                            the keys
    connection_overrides    connections of some addresses
    listener_spec           `listeners`, as Kafka writes them
    listener_keys           what one listener has of its own
    tls_settings            the certificate of a listener
    subject_rules           whose a client's certificate is
    exposure                whether a listener lets strangers in
    config_oauth            the keys about logins by a token, checked
    unknown_keys            what somebody may have meant
    config                  all of them: read, checked, with their sources
    descriptors             how few file descriptors are divided
    file_system             what a sync is worth where the data is
    kafka_settings          Kafka's settings that change nothing here
    log_sink                where its lines go, or nowhere
    logs                    the log
    settings                what was changed while it runs
    config_changes          ... as it comes
    locked_out              what nobody can do at a broker that has just started
"""
