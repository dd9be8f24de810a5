"""The offline check: `segbroker verify`.  Nothing is changed but by what is asked to repair.

A module imports only what stands above it:

    findings         what an offline check has to say
    log_check        one log checked, without changing a byte
    directory_check  the whole data directory checked; what repairs it
"""
