#include <stdint.h>
#include "kernel.h"

uint32_t sb_crc32c(uint32_t value, const uint8_t *data, uint64_t size) {
    uint32_t crc = ~value;
    for (uint64_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & -(crc & 1u));
    }
    return ~crc;
}
