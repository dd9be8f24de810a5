"""The `segbroker` command: the only room that prints."""
