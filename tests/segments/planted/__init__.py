"""Durability bugs, planted on purpose: proof that the harnesses would find them.

catalogue_*   each bug: a text of one module of segments/, or of broker/ by its name from there,
              what stands in its place, who finds it
planting      an import hook that changes the source before it is compiled; one process per bug
run           python -m tests.segments.planted.run [NAME ...]

A text that does not occur exactly once in its module is an error: the catalogue cannot rot.
"""
