/* The record batch, byte by byte: check, index, gather, select, walk.
 *
 * Specified by protocol/batch_pure.py, function by function; tests hold the two together on
 * good, mutated and random bytes.  Nothing here knows Python, so the interpreter's lock is free
 * while it runs.
 *
 * Invariants: hostile bytes are the normal case; every read is inside [data, data + size); sums
 * of attacker's numbers are checked for overflow; positions fit int32_t because the caller
 * passes at most 2^31-1 bytes.
 */
#include "bytes.h"
#include "kernel.h"

/* Shared with BatchFault, CheckMode and IndexFlag in batch_layout.py; a test compares them. */
enum fault {
    NONE,
    TRUNCATED,
    CORRUPT,
    UNSUPPORTED_MAGIC,
    MORE_THAN_ONE_BATCH,
    UNSUPPORTED_CODEC,
    CONTROL_BATCH,
    INVALID_COUNT,
    INVALID_PRODUCER,
    INVALID_RECORD,
    WRONG_MAX_TIMESTAMP,
};
enum mode { PRODUCE, STORED, HEADER };
enum flag {
    KEYS = 1,
    NULL_KEYS = 2,
    NULL_VALUES = 4,
    HEADERS = 8,
    HOLES = 16,
    TIMESTAMPS_DIFFER = 32,
};
enum { MAGIC = 2, MAGIC_POSITION = 16, RECORD_SIZE_MIN = 7 };
enum { CODEC_LAST = 4, LOG_APPEND_TIME = 8, TRANSACTIONAL = 16, CONTROL = 32 };

struct span {
    const uint8_t *start; /* NULL: null */
    int64_t size;         /* 0 when null */
};

struct record {
    const uint8_t *end;
    int64_t timestamp_delta, offset_delta;
    struct span key, value;
    const uint8_t *headers;
    int64_t headers_count;
};

static inline const uint8_t *get_span(const uint8_t *p, const uint8_t *end, int64_t least,
                                      struct span *out) {
    int64_t length;
    p = sb_get_varint(p, end, &length);
    if (!p || length < least || length > end - p) return NULL;
    if (length < 0) {
        out->start = NULL;
        out->size = 0;
        return p;
    }
    out->start = p;
    out->size = length;
    return p + length;
}

/* The record at p; NULL when it is malformed or reaches past `limit`. */
static inline const uint8_t *get_record(const uint8_t *p, const uint8_t *limit,
                                        struct record *out) {
    int64_t length;
    p = sb_get_varint(p, limit, &length);
    if (!p || length <= 0 || length > limit - p) return NULL;
    const uint8_t *end = p + length;
    p++; /* attributes: unused */
    if (!(p = sb_get_varlong(p, end, &out->timestamp_delta))) return NULL;
    if (!(p = sb_get_varint(p, end, &out->offset_delta))) return NULL;
    if (!(p = get_span(p, end, -1, &out->key))) return NULL;
    if (!(p = get_span(p, end, -1, &out->value))) return NULL;
    if (!(p = sb_get_varint(p, end, &out->headers_count))) return NULL;
    if (out->headers_count < 0 || out->headers_count > (end - p) / 2) return NULL;
    out->headers = p;
    for (int64_t i = 0; i < out->headers_count; i++) {
        struct span ignored;
        if (!(p = get_span(p, end, 0, &ignored))) return NULL;
        if (!(p = get_span(p, end, -1, &ignored))) return NULL;
    }
    if (p != end) return NULL;
    out->end = end;
    return end;
}

/* A sequence of records that must fill [p, end) exactly, with rising deltas. */
struct walk {
    const uint8_t *p, *end;
    int64_t previous, last_offset_delta, base_timestamp;
    int64_t timestamp; /* of the record that walk_next returned */
};

static int walk_start(struct walk *walk, const uint8_t *p, const uint8_t *end, int32_t count,
                      int32_t last_offset_delta, int64_t base_timestamp) {
    if (count < 0 || count > (end - p) / RECORD_SIZE_MIN) return 0;
    *walk = (struct walk){p, end, -1, last_offset_delta, base_timestamp, 0};
    return 1;
}

static inline int walk_next(struct walk *walk, struct record *record) {
    const uint8_t *p = get_record(walk->p, walk->end, record);
    if (!p) return 0;
    if (record->offset_delta <= walk->previous || record->offset_delta > walk->last_offset_delta)
        return 0;
    if (__builtin_add_overflow(walk->base_timestamp, record->timestamp_delta, &walk->timestamp))
        return 0;
    walk->previous = record->offset_delta;
    walk->p = p;
    return 1;
}

int sb_check(const uint8_t *batch, uint64_t size, int mode) {
    if (size <= MAGIC_POSITION) return TRUNCATED;
    if (batch[MAGIC_POSITION] != MAGIC) return UNSUPPORTED_MAGIC;
    if (size < SB_HEADER_SIZE) return TRUNCATED;
    const struct sb_header header = sb_get_header(batch);
    const int64_t rest = (int64_t)size - SB_LENGTH_END;

    if (header.batch_length < SB_HEADER_SIZE - SB_LENGTH_END) return CORRUPT;
    if (header.batch_length > rest) return TRUNCATED;
    if (header.batch_length < rest) return MORE_THAN_ONE_BATCH;
    if (sb_crc32c(0, batch + SB_ATTRIBUTES_POSITION, size - SB_ATTRIBUTES_POSITION) !=
        sb_get32(batch + SB_CRC_POSITION))
        return CORRUPT;
    if ((header.attributes & SB_CODEC_BITS) > CODEC_LAST) return UNSUPPORTED_CODEC;
    const int64_t offsets = (int64_t)header.last_offset_delta + 1;
    if (offsets < 1 || header.count < 0 || header.count > offsets) return INVALID_COUNT;
    if (mode == PRODUCE) {
        if (header.attributes & CONTROL) return CONTROL_BATCH;
        if (header.count != offsets) return INVALID_COUNT;
        if (header.producer_id >= 0 && (header.producer_epoch < 0 || header.base_sequence < 0))
            return INVALID_PRODUCER;
        if (header.producer_id < 0 && header.attributes & TRANSACTIONAL) return INVALID_PRODUCER;
    }
    if (header.attributes & SB_CODEC_BITS || mode == HEADER) return NONE;

    struct walk walk;
    struct record record;
    int64_t latest = INT64_MIN;
    if (!walk_start(&walk, batch + SB_HEADER_SIZE, batch + size, header.count,
                    header.last_offset_delta, header.base_timestamp))
        return INVALID_RECORD;
    for (int32_t i = 0; i < header.count; i++) {
        if (!walk_next(&walk, &record)) return INVALID_RECORD;
        if (walk.timestamp > latest) latest = walk.timestamp;
    }
    if (walk.p != walk.end) return INVALID_RECORD;
    if (mode == PRODUCE && latest != header.max_timestamp && !(header.attributes & LOG_APPEND_TIME))
        return WRONG_MAX_TIMESTAMP;
    return NONE;
}

/* ints: 6 columns, longs: 2 columns of `count`; totals: flags, keys, values, headers. */
int sb_index(const uint8_t *data, uint64_t position, uint64_t size, int32_t count,
             int64_t base_offset, int32_t last_offset_delta, int64_t base_timestamp,
             int use_append_time, int64_t append_time,
             int32_t *ints, int64_t *longs, int64_t *totals) {
    struct walk walk;
    struct record record;
    int64_t flags = 0, keys_size = 0, values_size = 0, headers_count = 0;
    const int64_t n = count;
    if (!walk_start(&walk, data + position, data + size, count, last_offset_delta,
                    base_timestamp))
        return 0;
    for (int64_t i = 0; i < n; i++) {
        if (!walk_next(&walk, &record)) return 0;
        if (record.value.start) {
            ints[i] = (int32_t)(record.value.start - data);
            ints[n + i] = (int32_t)(record.value.start - data + record.value.size);
        } else {
            ints[i] = ints[n + i] = -1;
            flags |= NULL_VALUES;
        }
        if (record.key.start) {
            ints[2 * n + i] = (int32_t)(record.key.start - data);
            ints[3 * n + i] = (int32_t)(record.key.start - data + record.key.size);
            flags |= KEYS;
        } else {
            ints[2 * n + i] = ints[3 * n + i] = -1;
            flags |= NULL_KEYS;
        }
        ints[4 * n + i] = (int32_t)(record.headers - data);
        ints[5 * n + i] = (int32_t)record.headers_count;
        if (record.headers_count) flags |= HEADERS;
        if (record.offset_delta != i) flags |= HOLES;
        longs[i] = base_offset + record.offset_delta;
        longs[n + i] = use_append_time ? append_time : walk.timestamp;
        if (longs[n + i] != longs[n]) flags |= TIMESTAMPS_DIFFER;
        keys_size += record.key.size;
        values_size += record.value.size;
        headers_count += record.headers_count;
    }
    if (walk.p != walk.end) return 0;
    totals[0] = flags;
    totals[1] = keys_size;
    totals[2] = values_size;
    totals[3] = headers_count;
    return 1;
}

/* After sb_index has walked the same bytes; still bounded, so that a caller's slip is no crash. */
void sb_index_headers(const uint8_t *data, uint64_t size, const int32_t *ints, int32_t count,
                      int32_t headers_count, int32_t *header_ints, int64_t *sizes) {
    const int64_t n = count, total = headers_count;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = data + ints[4 * n + i];
        for (int32_t j = 0; j < ints[5 * n + i] && at < total; j++, at++) {
            struct span key, value;
            if (!(p = get_span(p, data + size, 0, &key))) return;
            if (!(p = get_span(p, data + size, -1, &value))) return;
            header_ints[at] = (int32_t)(key.start - data);
            header_ints[total + at] = (int32_t)(key.start - data + key.size);
            header_ints[2 * total + at] = value.start ? (int32_t)(value.start - data) : -1;
            header_ints[3 * total + at] =
                value.start ? (int32_t)(value.start - data + value.size) : -1;
            sizes[0] += key.size;
            sizes[1] += value.size;
        }
    }
}

/* Append `count` byte strings to a column that holds `row` of them; `validity` comes zeroed.
 * Returns whether there was a null, -1 when `out` is too small. */
int sb_gather(const uint8_t *data, const int32_t *starts, const int32_t *ends, int64_t row,
              int32_t count, uint8_t *out, int64_t out_size, int32_t *offsets, uint8_t *validity) {
    int64_t at = offsets[row];
    int nulls = 0;
    for (int32_t i = 0; i < count; i++, row++) {
        if (starts[i] < 0) {
            nulls = 1;
        } else {
            const int32_t size = ends[i] - starts[i];
            if (size > out_size - at) return -1;
            memcpy(out + at, data + starts[i], (size_t)size);
            at += size;
            validity[row >> 3] |= (uint8_t)(1 << (row & 7));
        }
        offsets[row + 1] = (int32_t)at;
    }
    return nulls;
}

/* Running sums of `counts` go behind starts[0]. */
void sb_header_starts(const int32_t *counts, int32_t count, int32_t *starts) {
    for (int32_t i = 0; i < count; i++) starts[i + 1] = starts[i] + counts[i];
}

/* Copies the kept records to `out`, which is as large as the input; returns the size, or -1. */
int64_t sb_select(const uint8_t *data, uint64_t position, uint64_t size, int32_t count,
                  const uint8_t *keep, uint8_t *out, int64_t *latest_delta) {
    struct walk walk;
    struct record record;
    int64_t written = 0;
    *latest_delta = INT64_MIN;
    if (!walk_start(&walk, data + position, data + size, count, INT32_MAX, 0)) return -1;
    for (int32_t i = 0; i < count; i++) {
        const uint8_t *start = walk.p;
        if (!walk_next(&walk, &record)) return -1;
        if (!keep[i]) continue;
        memcpy(out + written, start, (size_t)(walk.p - start));
        written += walk.p - start;
        if (record.timestamp_delta > *latest_delta) *latest_delta = record.timestamp_delta;
    }
    return walk.p == walk.end ? written : -1;
}

/* How many bytes of whole batches there are up to and with the first gap that covers one of the
 * sorted offsets; end_offset: the one behind them, -1 for none. */
int64_t sb_until_gap(const uint8_t *data, int64_t size, const int64_t *offsets, int64_t count,
                     int64_t *end_offset) {
    int64_t position = 0, wanted = 0;
    *end_offset = -1;
    while (size - position >= SB_HEADER_SIZE) {
        const struct sb_header header = sb_get_header(data + position);
        const int64_t base_offset = (int64_t)sb_get64(data + position);
        const int64_t whole = SB_LENGTH_END + (int64_t)header.batch_length;
        const int64_t offsets_count = (int64_t)header.last_offset_delta + 1;
        int64_t end;
        if (whole < SB_HEADER_SIZE || whole > size - position || offsets_count < 1 ||
            __builtin_add_overflow(base_offset, offsets_count, &end))
            break;
        position += whole;
        *end_offset = end;
        while (wanted < count && offsets[wanted] < base_offset) wanted++;
        if (header.attributes & CONTROL && !header.count && wanted < count && offsets[wanted] < end)
            break;
    }
    return position;
}
