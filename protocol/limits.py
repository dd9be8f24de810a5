"""Every limit of the wire, in one place.

A limit is checked before the memory it bounds is taken.  What happens at it is said here and,
where a test proves it, beside the code.  Sizes are bytes, counts are items; every bound is
inclusive (a value equal to the limit passes).

A limit that somebody may want to change is an option of the broker or the client; only its default
is here.  The others follow from the format, or from what a hostile peer may cost.
"""

from typing import Final

MIB: Final = 1 << 20

# A frame outside [header, limit] closes the connection before its payload is read.
REQUEST_FRAME_SIZE_MAX: Final = 100 * MIB  # socket.request.max.bytes of Apache Kafka
FRAME_SIZE_MAX: Final = 100 * MIB  # replies, as our client accepts them
REQUEST_HEADER_SIZE_MIN: Final = 8  # api key, version, correlation id
RESPONSE_HEADER_SIZE_MIN: Final = 4  # correlation id

# The reader's buffer: how it begins, what one receive may at least bring, how far it grows ahead of
# the bytes that have arrived, and what a connection keeps once a large frame is done.
RECEIVE_SIZE: Final = 64 << 10
RECEIVE_SIZE_MIN: Final = 16 << 10
RECEIVE_GROWTH_MAX: Final = MIB
RECEIVE_KEEP_MAX: Final = 4 * MIB
# What our client keeps: after a large reply to a fetch comes another one.
REPLY_KEEP_MAX: Final = 16 * MIB

# Inside a message; the peer's frame is refused (RemoteProtocolError).
# (Strings: an int16 in the classic encoding; Kafka keeps the limit in the flexible one.)
STRING_SIZE_MAX: Final = 0x7FFF
ITEMS_COUNT_MAX: Final = 1 << 20  # array elements of one reply, nested ones included, numbers not
# ... of one request, numbers too: 100,000 partitions of a new topic, each with its replica, fit.
REQUEST_ITEMS_COUNT_MAX: Final = 1 << 18
TAGS_COUNT_MAX: Final = 1024  # tagged fields of one struct

# Names.  A topic name, Kafka's limit, is also the name of a directory.
TOPIC_NAME_SIZE_MAX: Final = 249
# Each is a directory.  The default of the option partitions_max is a tenth of it.
TOPIC_PARTITIONS_MAX: Final = 100_000
CLIENT_ID_SIZE_MAX: Final = STRING_SIZE_MAX

# Records: what a batch may decompress to.
RECORDS_SIZE_MAX: Final = 100 * MIB
# ... and how many headers it may have for whoever makes objects of them: two bytes there, 80 here.
HEADERS_COUNT_MAX: Final = 1 << 22

# Bodies of segbroker's own apis and persisted maps (msgpack).
# An empty list is one byte there and 56 in memory; who reads a larger map from disk says so, or
# one of more elements.
VENDOR_BODY_SIZE_MAX: Final = MIB
VENDOR_ITEMS_COUNT_MAX: Final = 1 << 20  # elements of one array or map
# ... and arrays and maps in all of one request: the collector of garbage looks at all that there
# are, again and again while they are made.  20,000 partitions, a map each, are the most asked for.
VENDOR_CONTAINERS_COUNT_MAX: Final = 50_000
VENDOR_DEPTH_MAX: Final = 32
