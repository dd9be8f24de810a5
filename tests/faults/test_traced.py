"""What strace writes, read: calls told in two lines, failures, and a second sync after one."""

from . import traced

LOG = """\
11 pwrite64(7</d/a.log>, "x", 1, 0) = 1
12 fdatasync(7</d/a.log> <unfinished ...>
11 rename("/d/m.tmp", "/d/m") = 0
12 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)
13 fdatasync(8</d/b.log>) = 0
13 fdatasync(7</d/a.log>) = 0
11 pwrite64(8</d/b.log>, "y", 1, 0 <unfinished ...>
11 +++ killed by SIGKILL +++
"""


def test_calls_are_put_together_in_the_order_in_which_they_ended() -> None:
    calls = list(traced._parse(LOG))
    assert [(call.thread, call.name, call.path) for call in calls] == [
        (11, "pwrite64", "/d/a.log"),
        (11, "rename", "/d/m.tmp"),
        (12, "fdatasync", "/d/a.log"),
        (13, "fdatasync", "/d/b.log"),
        (13, "fdatasync", "/d/a.log"),
        (11, "pwrite64", "/d/b.log"),
    ]
    assert [call.injected for call in calls] == [False, False, True, False, False, False]
    assert calls[2].failed
    assert calls[2].descriptor == 7


def test_a_second_sync_of_a_descriptor_that_failed_is_found() -> None:
    calls = list(traced._parse(LOG))
    (wrong,) = traced.second_syncs(calls)
    assert wrong.startswith("fdatasync of /d/a.log after fdatasync")


def test_a_descriptor_that_was_closed_is_another_one() -> None:
    lines = LOG.splitlines(keepends=True)
    reopened = "".join([*lines[:5], "13 close(7</d/a.log>) = 0\n", *lines[5:]])
    assert traced.second_syncs(list(traced._parse(reopened))) == []
