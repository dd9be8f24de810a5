"""The broker through its sockets."""
