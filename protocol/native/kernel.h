uint32_t sb_crc32c(uint32_t value, const uint8_t *data, uint64_t size);
