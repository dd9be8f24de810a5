/* Produce requests as they mostly come, found in what one receive brought.
 *
 * Specified by protocol/produce_scan_pure.py; tests hold the two together on good, mutated and
 * random bytes.  Nothing here knows Python, so the interpreter's lock is free while it runs.
 *
 * Invariants: hostile bytes are the normal case; every read is inside [data, data + end); a frame
 * that is not wholly plain is not described at all: whoever calls has the general way for it.
 */
#include "bytes.h"
#include "kernel.h"

/* Shared with produce_scan_pure.py; a test compares them. */
enum column {
    FRAME_BEGIN,
    FRAME_END,
    VERSION,
    CORRELATION,
    CLIENT_BEGIN,
    CLIENT_END,
    NAME_BEGIN,
    NAME_END,
    PARTITION,
    TIMEOUT,
    RECORDS_BEGIN,
    RECORDS_SIZE,
    OFFSETS_COUNT,
    MAX_TIMESTAMP,
    IS_TRACKED,
    STRETCH,
    COLUMNS,
};
enum { VERSION_FIRST = 3, FLEXIBLE = 9, BY_ID = 13, VERSION_LAST = 13, ZSTD_SINCE = 7 };
enum { ZSTD = 4, HEADER_SIZE_MIN = 10, ID_SIZE = 16, CHECK_PRODUCE = 0 };

static inline int32_t get_i32(const uint8_t *p) { return (int32_t)sb_get32(p); }

/* One frame in [begin, end), without its size field; whether it is plain. */
static int scan_frame(const uint8_t *data, int64_t begin, int64_t end, int64_t *row) {
    int64_t at = begin + HEADER_SIZE_MIN;
    if (at > end || sb_get16(data + begin) != 0) return 0;
    const int version = sb_get16(data + begin + 2);
    if (version < VERSION_FIRST || version > VERSION_LAST) return 0;
    row[VERSION] = version;
    row[CORRELATION] = get_i32(data + begin + 4);
    const int client_size = sb_get16(data + begin + 8);
    if (client_size < -1) return 0;
    row[CLIENT_BEGIN] = client_size < 0 ? -1 : at;
    if (client_size > 0) at += client_size;
    row[CLIENT_END] = client_size < 0 ? -1 : at;
    int acks;
    int64_t size;
    if (version < FLEXIBLE) {
        if (at + 14 > end) return 0;
        const uint8_t *p = data + at;
        const int name_size = sb_get16(p + 12);
        if (sb_get16(p) != -1 || get_i32(p + 8) != 1 || name_size < 0) return 0;
        acks = sb_get16(p + 2);
        row[TIMEOUT] = get_i32(p + 4);
        row[NAME_BEGIN] = at + 14;
        at += 14 + name_size;
        row[NAME_END] = at;
        if (at + 12 > end) return 0;
        p = data + at;
        size = get_i32(p + 8);
        if (get_i32(p) != 1 || size < 0) return 0;
        row[PARTITION] = get_i32(p + 4);
        at += 12;
        if (size > end - at) return 0;
    } else {
        /* No tagged fields in the header; then a null id, acks, timeout, one topic, its name or, of
         * a fixed size, its id. */
        if (at + 10 > end || data[at]) return 0;
        const uint8_t *p = data + at + 1;
        const int is_by_id = version >= BY_ID, name_size = p[8];
        if (p[0] || p[7] != 2) return 0;
        if (!is_by_id && (name_size < 1 || name_size > 127)) return 0;
        acks = sb_get16(p + 1);
        row[TIMEOUT] = get_i32(p + 3);
        at += is_by_id ? 9 : 10;
        row[NAME_BEGIN] = at;
        at += is_by_id ? ID_SIZE : name_size - 1;
        row[NAME_END] = at;
        if (at + 5 > end || data[at] != 2) return 0;
        row[PARTITION] = get_i32(data + at + 1);
        uint64_t compact;
        const uint8_t *after = sb_get_unsigned(data + at + 5, data + end, 32, &compact);
        if (!after || compact < 1) return 0;
        at = after - data;
        size = (int64_t)compact - 1;
        if (size > end - at - 3) return 0;
        p = data + at + size; /* no tagged fields in partition, topic and request */
        if (p[0] || p[1] || p[2]) return 0;
    }
    if (acks != -1 && acks != 1) return 0;
    const uint8_t *batch = data + at;
    if (sb_check(batch, (uint64_t)size, CHECK_PRODUCE)) return 0;
    const struct sb_header header = sb_get_header(batch);
    if (header.attributes & ~SB_CODEC_BITS) return 0;
    if (header.attributes == ZSTD && version < ZSTD_SINCE) return 0;
    if (header.attributes && header.max_timestamp < header.base_timestamp) return 0;
    row[RECORDS_BEGIN] = at;
    row[RECORDS_SIZE] = size;
    row[OFFSETS_COUNT] = (int64_t)header.last_offset_delta + 1;
    row[MAX_TIMESTAMP] = header.max_timestamp;
    row[IS_TRACKED] = header.producer_id >= 0;
    return 1;
}

/* Whether two pieces of the data, or two of nothing, are the same. */
static int same_bytes(const uint8_t *data, const int64_t *one, const int64_t *other, int begin) {
    const int64_t size = one[begin + 1] - one[begin];
    if (one[begin] < 0 || other[begin] < 0) return one[begin] == other[begin];
    return size == other[begin + 1] - other[begin] &&
           !memcmp(data + one[begin], data + other[begin], (size_t)size);
}

/* Whether the second of two requests goes where the first goes, and asks for the same. */
static int same_way(const uint8_t *data, const int64_t *one, const int64_t *other) {
    return one[VERSION] == other[VERSION] && one[PARTITION] == other[PARTITION] &&
           one[TIMEOUT] == other[TIMEOUT] && !one[IS_TRACKED] && !other[IS_TRACKED] &&
           same_bytes(data, one, other, CLIENT_BEGIN) && same_bytes(data, one, other, NAME_BEGIN);
}

int sb_same_way(const uint8_t *data, const int64_t *columns, int32_t stride, int32_t one,
                int32_t other) {
    int64_t pair[2][COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        pair[0][c] = columns[(int64_t)c * stride + one];
        pair[1][c] = columns[(int64_t)c * stride + other];
    }
    return same_way(data, pair[0], pair[1]);
}

/* Describes the plain frames at the beginning of data[begin:end), at most `most` of them, and says
 * where they end.  Column c of row n lies at columns[c * stride + n]. */
int32_t sb_scan_produce(const uint8_t *data, int64_t begin, int64_t end, int64_t *columns,
                        int32_t stride, int32_t most, int64_t *stop) {
    int64_t pair[2][COLUMNS] = {{0}, {0}};
    int32_t count = 0, head = 0;
    while (count < most && end - begin >= 4) {
        const int64_t size = get_i32(data + begin);
        int64_t *row = pair[count & 1], *previous = pair[~count & 1];
        if (size < HEADER_SIZE_MIN || size > end - begin - 4) break;
        if (!scan_frame(data, begin + 4, begin + 4 + size, row)) break;
        row[FRAME_BEGIN] = begin;
        begin += 4 + size;
        row[FRAME_END] = begin;
        row[STRETCH] = 0;
        if (count && !same_way(data, previous, row)) head = count;
        for (int c = 0; c < COLUMNS; c++) columns[(int64_t)c * stride + count] = row[c];
        count++;
        columns[(int64_t)STRETCH * stride + head] = count - head;
    }
    *stop = begin;
    return count;
}
