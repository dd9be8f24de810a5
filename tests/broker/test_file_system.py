"""Which file system the data is on, by a table of mounts."""

from pathlib import Path

import pytest

from segbroker.broker.configuration.file_system import file_system_of

TABLE = """\
22 1 0:21 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
23 22 0:22 / /proc rw - proc proc rw
24 22 8:1 / /data rw,relatime shared:1 - ext4 /dev/vda rw
25 24 0:30 / /data/fast rw - tmpfs tmpfs rw,size=1024k
26 24 8:2 / /data/unsafe rw - ext4 /dev/vdb rw,nobarrier
27 24 8:2 / /data/older rw - ext3 /dev/vdb rw,barrier=0
28 24 0:31 / /data/of\\040another rw - nfs4 host:/export rw,vers=4.2
29 24 0:32 / /data/program rw - fuse.sshfs host: rw
30 22 0:33 / /layer rw - overlay overlay rw,lowerdir=/l,volatile
31 22 0:34 / /twice rw - tmpfs tmpfs rw
32 31 8:3 / /twice rw master:2 propagate_from:3 - xfs /dev/vdc rw
a line of a kernel to come
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "mountinfo").write_text(TABLE)
    return str(tmp_path / "mountinfo")


@pytest.mark.parametrize(
    ("path", "kind", "mount_point", "weak"),
    [
        ("/data", "ext4", "/data", ""),
        ("/data/topics", "ext4", "/data", ""),
        ("/data/faster", "ext4", "/data", ""),
        ("/data/fast/topics", "tmpfs", "/data/fast", "in memory"),
        ("/data/unsafe", "ext4", "/data/unsafe", "mounted so"),
        ("/data/older/x", "ext3", "/data/older", "mounted so"),
        ("/data/of another/x", "nfs4", "/data/of another", "server"),
        ("/data/program", "fuse.sshfs", "/data/program", "server"),
        ("/database", "overlay", "/", "container"),
        ("/layer", "overlay", "/layer", "mounted so"),
        ("/twice/x", "xfs", "/twice", ""),
    ],
)
def test_the_last_of_the_innermost_mounts_is_where_the_data_is(
    table: str, path: str, kind: str, mount_point: str, weak: str
) -> None:
    found = file_system_of(path, table)
    assert found is not None
    assert (found.kind, found.mount_point) == (kind, mount_point)
    assert (found.weakness is None) == (not weak)
    assert weak in (found.weakness or "")


def test_links_are_followed(table: str, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/data/fast")
    found = file_system_of(str(tmp_path / "data"), table)
    assert found is not None
    assert found.kind == "tmpfs"


def test_a_name_that_is_not_utf_8_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_bytes(b"1 0 0:1 / /\xff rw - tmpfs tmpfs rw\n")
    found = file_system_of("/\udcff/data", str(tmp_path / "mountinfo"))
    assert found is not None
    assert (found.kind, found.mount_point) == ("tmpfs", "/?")


def test_where_there_is_no_table_nothing_is_known(tmp_path: Path) -> None:
    assert file_system_of("/data", str(tmp_path / "none")) is None
