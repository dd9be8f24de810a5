"""The metrics page and the health pages, over HTTP: for Prometheus and for probes.

    GET /metrics -> gather on the loop, in slices -> render in a lane -> answer

A module imports only what stands above it:

    families         what is measured: names, kinds, labels, meanings
    numbers          the numbers of one page, as they are gathered
    ages             how old the record is that a group reads next
    of_traffic       connections, requests, bytes, the loop
    of_storage       the directory, the WAL, recovery, upkeep, the volume
    of_topics        topics and partitions
    of_groups        groups: members, state, lag
    gathering        all of them, one after the other
    exposition       numbers as text, by prometheus_client
    pages            which path has which page; health
    http_connection  one connection, by h11
    http_server      where connections come in
"""
