"""-f and -J: expected output written out."""

import pytest

from segbroker.cli.record_format import compile_format, format_json
from segbroker.client.records import Record

RECORD = Record("flights", 3, 7, 1_700_000_000_000, b"AA", b"late", (("a", b"1"), ("b", b"2")))
BARE = Record("t", 0, 8, 1_700_000_000_001, None, None, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%s\n", b"late\n"),
        (r"%t[%p]@%o %T\n", b"flights[3]@7 1700000000000\n"),
        (r"%k=%s\t%K/%S", b"AA=late\t2/4"),
        ("%h", b"a=1,b=2"),
        ("100%%", b"100%"),
        (r"\x00\xfF\\\0", b"\x00\xff\\\0"),
        ("no newline is added", b"no newline is added"),
        ("", b""),
        (r"%%s", b"%s"),
    ],
)
def test_a_format_prints_what_its_escapes_say(text: str, expected: bytes) -> None:
    assert compile_format(text)(RECORD) == expected


def test_a_null_prints_as_nothing_with_length_minus_one() -> None:
    assert compile_format("[%k][%s][%K][%S][%h]")(BARE) == b"[][][-1][-1][]"


def test_a_null_prints_as_the_text_asked_for() -> None:
    record = Record("t", 0, 0, 0, None, b"", (("h", None),))
    assert compile_format("%k,%s,%h", "NULL")(record) == b"NULL,,h=NULL"


def test_bytes_of_a_value_go_out_unchanged() -> None:
    every = bytes(range(256))
    assert compile_format("%s")(Record("t", 0, 0, 0, None, every, ())) == every


@pytest.mark.parametrize(
    ("text", "named"),
    [("%q", "%q is unknown"), ("%", "% is unknown"), (r"\q", r"\q is no"), (r"\x1", r"\x is no")],
)
def test_an_unknown_escape_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is what is tested
        compile_format(text)
    assert named in str(caught.value)


def test_json_is_one_line_with_all_members() -> None:
    assert format_json(RECORD) == (
        b'{"topic":"flights","partition":3,"offset":7,"timestamp_ms":1700000000000,'
        b'"key":"AA","value":"late",'
        b'"headers":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}\n'
    )


def test_json_has_null_for_null() -> None:
    assert format_json(BARE) == (
        b'{"topic":"t","partition":0,"offset":8,"timestamp_ms":1700000000001,'
        b'"key":null,"value":null,"headers":[]}\n'
    )


def test_json_names_base64_when_the_bytes_are_not_utf8() -> None:
    record = Record("t", 0, 0, 0, b"\xff", b"\x00\x80", (("h", b"\xfe"), ("n", None)))
    assert format_json(record) == (
        b'{"topic":"t","partition":0,"offset":0,"timestamp_ms":0,'
        b'"key_base64":"/w==","value_base64":"AIA=",'
        b'"headers":[{"name":"h","value_base64":"/g=="},{"name":"n","value":null}]}\n'
    )


def test_json_keeps_utf8_readable_and_newlines_inside_the_line() -> None:
    line = format_json(Record("t", 0, 0, 0, None, "Zürich\n\0".encode(), ()))
    assert '"value":"Zürich\\n\\u0000"'.encode() in line
    assert line.count(b"\n") == 1
