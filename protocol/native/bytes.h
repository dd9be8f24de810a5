/* Big-endian integers and varints, read only inside [p, end). */
#ifndef SB_BYTES_H
#define SB_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SB_HEADER_SIZE = 61, SB_LENGTH_END = 12, SB_CRC_POSITION = 17, SB_ATTRIBUTES_POSITION = 21 };
enum { SB_CODEC_BITS = 7 };

static inline int16_t sb_get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }

static inline uint32_t sb_get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t sb_get64(const uint8_t *p) {
    return (uint64_t)sb_get32(p) << 32 | sb_get32(p + 4);
}

/* What the checksum of a batch covers, up to the records; and the length. */
struct sb_header {
    int32_t batch_length;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp, max_timestamp, producer_id;
    int16_t producer_epoch;
    int32_t base_sequence, count;
};

/* Of at least SB_HEADER_SIZE bytes. */
static inline struct sb_header sb_get_header(const uint8_t *batch) {
    return (struct sb_header){
        .batch_length = (int32_t)sb_get32(batch + 8),
        .attributes = sb_get16(batch + SB_ATTRIBUTES_POSITION),
        .last_offset_delta = (int32_t)sb_get32(batch + 23),
        .base_timestamp = (int64_t)sb_get64(batch + 27),
        .max_timestamp = (int64_t)sb_get64(batch + 35),
        .producer_id = (int64_t)sb_get64(batch + 43),
        .producer_epoch = sb_get16(batch + 51),
        .base_sequence = (int32_t)sb_get32(batch + 53),
        .count = (int32_t)sb_get32(batch + 57),
    };
}

static inline uint8_t *sb_put(uint8_t *p, uint64_t value, int size) {
    for (int i = size; i-- > 0; value >>= 8) p[i] = (uint8_t)value;
    return p + size;
}

/* An unsigned varint of at most `bits` bits (32 or 64); NULL when malformed or cut short. */
static inline const uint8_t *sb_get_unsigned(const uint8_t *p, const uint8_t *end, int bits,
                                             uint64_t *out) {
    uint64_t result = 0;
    int shift = 0;
    uint8_t byte;
    do {
        if (p >= end || shift >= bits) return NULL;
        byte = *p++;
        if (shift == 63 && byte > 1) return NULL;
        result |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte >= 0x80);
    if (bits == 32 && result >> 32) return NULL;
    *out = result;
    return p;
}

static inline int64_t sb_unzigzag(uint64_t value) {
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

static inline const uint8_t *sb_get_varint(const uint8_t *p, const uint8_t *end, int64_t *out) {
    uint64_t value;
    if (p < end && *p < 0x80) { /* one byte: most of them */
        *out = sb_unzigzag(*p);
        return p + 1;
    }
    p = sb_get_unsigned(p, end, 32, &value);
    if (p) *out = sb_unzigzag(value);
    return p;
}

static inline const uint8_t *sb_get_varlong(const uint8_t *p, const uint8_t *end, int64_t *out) {
    uint64_t value;
    p = sb_get_unsigned(p, end, 64, &value);
    if (p) *out = sb_unzigzag(value);
    return p;
}

static inline uint64_t sb_zigzag(int64_t value) {
    return (uint64_t)value << 1 ^ (0 - ((uint64_t)value >> 63));
}

static inline int sb_varint_size(int64_t value) {
    uint64_t rest = sb_zigzag(value);
    int size = 1;
    for (; rest > 0x7f; rest >>= 7) size++;
    return size;
}

static inline uint8_t *sb_put_varint(uint8_t *p, int64_t value) {
    uint64_t rest = sb_zigzag(value);
    for (; rest > 0x7f; rest >>= 7) *p++ = (uint8_t)(rest | 0x80);
    *p++ = (uint8_t)rest;
    return p;
}

#endif
