"""What can be set per topic: names, values, limits; text from an operator becomes a checked value.

A module imports only what stands above it:

    units             numbers as people write them: 64 MiB, 7 d
    setting_values    text of a topic setting, as a value
    inert_settings    Kafka's topic settings that are taken without effect
    topic_config      the settings of a topic
    topic_defaults    what is chosen for all topics
    timestamp_bounds  which timestamps a topic takes
"""
