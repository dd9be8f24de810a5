"""A broker inside your tests.  A module imports only what stands above it:

    clock      the time that an embedded broker believes in
    quiet      what it logs where nobody has configured structlog
    embedded   EmbeddedBroker: a whole broker on in-memory storage, in a thread of its own
    plugin     the pytest fixtures `segbroker` and `segbroker_session`

How to use it, with examples: docs/testing.md.

The plugin is loaded by every pytest run of whoever has segbroker installed, so neither this file
nor `plugin` imports anything of weight before a fixture is asked for.
"""
