"""The crash-state enumerator: every disk that a crash may leave, recovered and judged.

    scenario -> driver -> DiskManager -> RecordingStorage      what is done, operation by operation
                  |                          |
                model                     images               every legal disk after each of them
                  |                          |
                judge  <-  observation  <- recovery            what must be there, what is there

recording   a disk that remembers what was not synced, and fails on demand
images      which disks a crash may leave of it
observing   a disk opened, read, opened once more, written to, cut off, read again
model       what was promised, step by step; invariants.py compares
alike       what recovery takes from a file, so which disks need no recovery of their own
explorer    runs a scenario and brings all of that together; counts
second_life what a start after a kill leaves, when the power goes
driver      the steps that scenarios are made of
scenarios_* the scenarios
"""
