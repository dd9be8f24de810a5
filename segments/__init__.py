"""What survives a power cut: segment files, their indexes, the registry of logs.

Blocking I/O through one port, `Storage`; time arrives as `now_ms`.  Nothing here knows a
socket, an event loop or the clock.
"""
