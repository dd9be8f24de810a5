#include <stdint.h>
#include "kernel.h"

uint32_t sb_crc32c(const uint8_t *data, uint64_t size) {
    uint32_t crc = ~0u;
    for (uint64_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & -(crc & 1u));
    }
    return ~crc;
}
