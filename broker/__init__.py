"""Who waits for whom: connections, requests, replies, on one trio loop.

Nothing here opens a file or packs a struct: bytes belong to protocol/, files to segments/.
"""
