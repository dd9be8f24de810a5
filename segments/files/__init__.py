"""Files beside a segment: its index, and the manifest that says which segments a log has.

Layouts, byte by byte: docs/formats.md.

A module imports only what stands above it:

    index          where the blocks of a segment lie, and their checksums; .index
    unsynced       that a sync of the log has failed; .unsynced
    manifest       the rows a log keeps about itself; .manifest
    clean_points   how far a log was cleaned, and since when
    manifest_file  ... and who writes it
    copies         what a copy of a segment is called in quarantine/
"""
