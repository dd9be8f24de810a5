/* CRC-32C (Castagnoli, reflected 0x82f63b78).
 *
 * The instruction takes 8 bytes a cycle but answers three cycles later; so three stretches run
 * side by side and are put together: the sum of A|B is shift(sum(A), size of B) ^ sum(B), where
 * shift is linear and comes from four tables per size.  The instructions are chosen when the
 * library is loaded; a processor without them gets the table variant, eight bytes a step.
 */
#include "bytes.h"
#include "kernel.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HARDWARE __attribute__((target("sse4.2")))
#define STEP64(sum, word) ((uint32_t)_mm_crc32_u64((sum), (word)))
#define STEP8(sum, byte) (_mm_crc32_u8((sum), (byte)))
#elif defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#define HARDWARE
static inline uint32_t step64(uint32_t sum, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word));
    return sum;
}
static inline uint32_t step8(uint32_t sum, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(sum) : "r"((uint32_t)byte));
    return sum;
}
#define STEP64(sum, word) step64((sum), (word))
#define STEP8(sum, byte) step8((sum), (byte))
#endif

enum { POLYNOMIAL = 0x82f63b78u, LONG = 4096, SHORT = 256 };

static uint32_t table[8][256];
static uint32_t shift_long[4][256], shift_short[4][256];
static uint32_t (*crc32c)(uint32_t, const uint8_t *, uint64_t);

uint32_t sb_crc32c_table(uint32_t value, const uint8_t *data, uint64_t size) {
    uint32_t sum = ~value;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = sum ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                              (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        sum = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^
              table[0][data[7]];
    }
    for (; size; data++, size--) sum = table[0][(sum ^ *data) & 0xff] ^ sum >> 8;
    return ~sum;
}

#ifdef HARDWARE
static inline uint64_t word_at(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t shift(uint32_t tables[4][256], uint32_t sum) {
    return tables[0][sum & 0xff] ^ tables[1][sum >> 8 & 0xff] ^ tables[2][sum >> 16 & 0xff] ^
           tables[3][sum >> 24];
}

HARDWARE static uint32_t crc32c_hardware(uint32_t value, const uint8_t *data, uint64_t size) {
    uint32_t a = ~value;
    static const uint64_t stretches[2] = {LONG, SHORT};
    for (int i = 0; i < 2; i++) {
        const uint64_t stretch = stretches[i];
        uint32_t(*tables)[256] = i ? shift_short : shift_long;
        for (; size >= 3 * stretch; data += 3 * stretch, size -= 3 * stretch) {
            uint32_t b = 0, c = 0;
            for (const uint8_t *p = data, *end = data + stretch; p < end; p += 8) {
                a = STEP64(a, word_at(p));
                b = STEP64(b, word_at(p + stretch));
                c = STEP64(c, word_at(p + 2 * stretch));
            }
            a = shift(tables, a) ^ b;
            a = shift(tables, a) ^ c;
        }
    }
    for (; size >= 8; data += 8, size -= 8) a = STEP64(a, word_at(data));
    for (; size; data++, size--) a = STEP8(a, *data);
    return ~a;
}

static int has_hardware(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 7 & 1) != 0; /* HWCAP_CRC32 */
#elif defined(__APPLE__)
    return 1;
#else
    return 0;
#endif
}
#endif

/* What `size` zero bytes make of each byte of a sum.  Linear: the eight bits of a byte tell all. */
static void make_shift(uint32_t tables[4][256], uint32_t size) {
    for (int place = 0; place < 4; place++) {
        tables[place][0] = 0;
        for (uint32_t bit = 1; bit < 256; bit <<= 1) {
            uint32_t sum = bit << 8 * place;
            for (uint32_t i = 0; i < size; i++) sum = table[0][sum & 0xff] ^ sum >> 8;
            for (uint32_t rest = 0; rest < bit; rest++)
                tables[place][bit | rest] = sum ^ tables[place][rest];
        }
    }
}

__attribute__((constructor)) static void choose(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (POLYNOMIAL & (0 - (sum & 1)));
        table[0][byte] = sum;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++)
            table[row][byte] = table[0][table[row - 1][byte] & 0xff] ^ table[row - 1][byte] >> 8;
    crc32c = sb_crc32c_table;
#ifdef HARDWARE
    if (has_hardware()) {
        make_shift(shift_long, LONG);
        make_shift(shift_short, SHORT);
        crc32c = crc32c_hardware;
    }
#endif
}

uint32_t sb_crc32c(uint32_t value, const uint8_t *data, uint64_t size) {
    return crc32c(value, data, size);
}

