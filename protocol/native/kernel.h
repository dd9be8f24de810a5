uint32_t sb_crc32c(const uint8_t *data, uint64_t size);
