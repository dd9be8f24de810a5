import re
from pathlib import Path

import pytest

from segbroker.protocol import limits
from segbroker.protocol.api_keys import (
    SERVED,
    SERVED_VENDOR,
    ApiKey,
    ApiVersionRange,
    api_versions_response,
    is_flexible,
    is_served,
    is_vendor,
    request_class,
    response_class,
    response_header_version,
)
from segbroker.protocol.errors import UnsupportedVersion
from segbroker.protocol.vendor import VendorKey

# Old librdkafka switches a feature on by the presence of one exact version.
EXACT = {
    ApiKey.PRODUCE: (3, 7),
    ApiKey.FETCH: (4, 10, 12),
    ApiKey.LIST_OFFSETS: (1, 2),
    ApiKey.FIND_COORDINATOR: (0, 1),
    ApiKey.INIT_PRODUCER_ID: (0,),
    ApiKey.API_VERSIONS: (0,),
    ApiKey.METADATA: (0, 1, 4),
}


@pytest.mark.parametrize("key", EXACT)
def test_the_versions_that_old_clients_look_for_are_served(key: ApiKey) -> None:
    for version in EXACT[key]:
        assert is_served(key, version)


def test_produce_is_served_from_0_for_old_librdkafka() -> None:
    assert SERVED[ApiKey.PRODUCE] == ApiVersionRange(0, 13)


@pytest.mark.parametrize(
    ("key", "version"), [(0, -1), (0, 14), (1, 19), (3, -1), (7, 0), (9999, 0), (-1, 0), (10000, 1)]
)
def test_what_is_not_served_is_not_served(key: int, version: int) -> None:
    assert not is_served(key, version)


def test_vendor_keys_are_told_to_our_own_clients_alone() -> None:
    ours, _ = api_versions_response(3, vendor=True)
    foreign, _ = api_versions_response(3, vendor=False)
    assert all(not is_vendor(row.api_key) for row in foreign.api_keys)
    assert {row.api_key for row in ours.api_keys if is_vendor(row.api_key)} == set(SERVED_VENDOR)
    assert is_served(VendorKey.SERVER_INFO, 0)


def test_the_answer_to_api_versions_lists_what_is_served() -> None:
    response, _ = api_versions_response(3, vendor=False)
    assert {
        ApiKey(row.api_key): ApiVersionRange(row.min_version, row.max_version)
        for row in response.api_keys
    } == SERVED


def test_a_key_without_a_message_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersion, match="4"):
        request_class(4)
    with pytest.raises(UnsupportedVersion, match="4"):
        response_class(4)


def test_a_reply_has_tags_where_its_version_is_flexible_but_for_api_versions() -> None:
    assert (is_flexible(0, 8), response_header_version(0, 8)) == (False, 0)
    assert (is_flexible(0, 9), response_header_version(0, 9)) == (True, 1)
    assert (is_flexible(18, 2), response_header_version(18, 2)) == (False, 0)
    assert (is_flexible(18, 3), response_header_version(18, 3)) == (True, 0)
    assert (is_flexible(17, 1), response_header_version(17, 1)) == (False, 0)
    assert not is_flexible(VendorKey.SERVER_INFO, 0)


DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_document_lists_what_is_served() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \| (\d+)\u2013(\d+) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    documented = {
        int(key): (name, ApiVersionRange(int(first), int(last))) for key, name, first, last in rows
    }
    assert documented == {
        int(key): (request_class(key).__name__.removesuffix("Request"), versions)
        for key, versions in SERVED.items()
    }


def test_the_document_lists_the_vendor_keys() -> None:
    rows = re.findall(r"^\| (\d{5}) \| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    assert {int(key): name for key, name in rows} == {int(key): key.name for key in VendorKey}


def test_the_document_says_which_versions_are_flexible() -> None:
    text = DOCUMENT.read_text().replace("\n", " ")
    for key in SERVED:
        cls = request_class(key)
        if cls.flexible_from > cls.message_versions[1]:
            continue
        name = cls.__name__.removesuffix("Request")
        assert re.search(rf"\b{name} {cls.flexible_from}\b", text), name


def test_the_document_states_the_limits_as_they_are() -> None:
    for name in re.findall(r"`([A-Z_]+_MAX)`", DOCUMENT.read_text()):
        assert hasattr(limits, name), name
    stated = dict(re.findall(r"`([A-Z_]+_MAX)` \| ([\d,]+(?: MiB)?)", DOCUMENT.read_text()))
    for name, value in stated.items():
        number = int(value.removesuffix(" MiB").replace(",", ""))
        assert getattr(limits, name) == (number << 20 if value.endswith("MiB") else number), name
