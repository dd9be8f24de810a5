"""What the exit code of `segbroker` means.  docs/cli.md repeats this table; a test compares them.

Scripts tell three things apart by it: my own mistake (2, 3), try again later (4), look at the data
(5 to 8, 10, 11).  A code, once released, keeps its meaning.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The meaning of each code is its docstring in MEANINGS."""

    OK = 0
    BUG = 1
    USAGE = 2
    CONFIG = 3
    UNREACHABLE = 4
    NOT_FOUND = 5
    REFUSED = 6
    UNDELIVERED = 7
    DAMAGED = 8
    SYSTEM = 9
    LOST = 10
    ATTENTION = 11
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "Done; also when the reader of the output went away (`| head`).",
    ExitCode.BUG: "Something unexpected: a bug in segbroker, with a traceback.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.CONFIG: (
        "A setting of the broker or of a topic is unknown or has a wrong value; `serve`: also where"
        " the files of a certificate cannot be used."
    ),
    ExitCode.UNREACHABLE: "No broker could be reached, or it did not answer in time.",
    ExitCode.NOT_FOUND: (
        "What was named does not exist: a topic, partition, offset, group, user, context or quota."
    ),
    ExitCode.REFUSED: "The broker answered and refused; `spark`: a query failed.",
    ExitCode.UNDELIVERED: "`produce`: at least one record was not delivered; the lines are named.",
    ExitCode.DAMAGED: (
        "Damaged bytes were found, in a file or in what was fetched; or a file of a later version."
    ),
    ExitCode.SYSTEM: "The system refused: port in use, directory locked, disk full, no permission.",
    ExitCode.LOST: "`consume`, `spark` (`--on-gap raise`): records were lost; a line says which.",
    ExitCode.ATTENTION: "`broker status --check`: there is a problem; the output names it.",
    ExitCode.INTERRUPTED: (
        'Ended by Ctrl-C, or by the answer "no" to a question. `serve`: by a second Ctrl-C.'
    ),
    ExitCode.TERMINATED: "Ended by SIGTERM. `serve`: by a second one; the first drains.",
}
assert MEANINGS.keys() == set(ExitCode), "an exit code without a meaning"
