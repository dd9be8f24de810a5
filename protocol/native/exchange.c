/* Receiving from many connections, and answering them: one call for all.
 *
 * Specified by broker/producing/exchange_pure.py; tests hold the two together on socket pairs.  Nothing here
 * knows Python, so the interpreter's lock is free while it runs.  What a socket does not give or take
 * at once is told, and is the caller's; only sb_hold_produce looks again, for as long as it is told.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif
#ifndef _WIN32
#include <sys/socket.h>
#include <sys/types.h>
#endif

#include "bytes.h"
#include "kernel.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* where it is not there the interpreter ignores SIGPIPE all the same */
#endif

/* Shared with exchange_pure.py. */
enum result { BEGIN, SIZE, FIRST, COUNT, STOP, WAY, RESULTS };
enum { HEADS_MAX = 16, RECORDS_BEGIN = 10, RECORDS_SIZE = 11, FIELDS = 4 };
/* Correlation, size of the records, offsets, greatest timestamp. */
static const int fields_of[FIELDS] = {3, RECORDS_SIZE, 12, 13};

int32_t sb_receive_produce(const int32_t *fds, int32_t count, uint8_t *data, int64_t begin,
                           int64_t end, int64_t least, int64_t most, int64_t *columns,
                           int32_t stride, int32_t first, int64_t *results) {
    int32_t heads[HEADS_MAX], heads_count = 0;
    int32_t n = 0;
    for (; n < count && first < stride && end - begin >= least; n++) {
        int64_t *result = results + (int64_t)n * RESULTS;
        const int64_t room = end - begin < most ? end - begin : most;
#ifdef _WIN32
        const int64_t size = -ENOSYS;
#else
        int64_t size = recv(fds[n], data + begin, (size_t)room, MSG_DONTWAIT);
        if (size < 0) size = -errno;
#endif
        result[BEGIN] = result[STOP] = begin;
        result[SIZE] = size;
        result[FIRST] = first;
        result[COUNT] = 0;
        result[WAY] = -1;
        if (size <= 0) continue;
        const int32_t rows = sb_scan_produce(data, begin, begin + size, columns + first, stride,
                                             stride - first, result + STOP);
        result[COUNT] = rows;
        begin += size;
        if (!rows) continue;
        int32_t head = 0;
        while (head < heads_count && !sb_same_way(data, columns, stride, heads[head], first)) head++;
        if (head == heads_count && heads_count < HEADS_MAX) heads[heads_count++] = first;
        result[WAY] = head < heads_count ? heads[head] : first;
        first += rows;
    }
    return n;
}

#ifdef __linux__
static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

int32_t sb_hold_produce(int32_t epoll, int32_t fd, int64_t nanoseconds, uint8_t *data, int64_t end,
                        int64_t most, int64_t *columns, int32_t stride, int64_t *results) {
#ifdef __linux__
    const int64_t until = now_ns() + nanoseconds;
    do {
        struct epoll_event ready[2];
        const int found = epoll_wait(epoll, ready, 2, 0);
        for (int n = 0; n < found; n++)
            if (ready[n].data.fd != fd) return -1;
        if (found > 0) {
            sb_receive_produce(&fd, 1, data, 0, end, 0, most, columns, stride, 0, results);
            return 1;
        }
    } while (now_ns() < until);
#else
    (void)epoll, (void)fd, (void)nanoseconds, (void)data, (void)end, (void)most, (void)columns,
        (void)stride, (void)results;
#endif
    return 0;
}

int64_t sb_gather_rows(const uint8_t *data, const int64_t *columns, int32_t stride,
                       const int32_t *rows, int32_t count, uint8_t *out, int64_t room,
                       int64_t *fields) {
    int64_t total = 0;
    for (int32_t n = 0; n < count; n++) {
        const int64_t *row = columns + rows[n];
        const int64_t size = row[(int64_t)RECORDS_SIZE * stride];
        if (size > room - total) return -1;
        memcpy(out + total, data + row[(int64_t)RECORDS_BEGIN * stride], (size_t)size);
        for (int field = 0; field < FIELDS; field++)
            fields[(int64_t)field * count + n] = row[(int64_t)fields_of[field] * stride];
        total += size;
    }
    return total;
}

int32_t sb_reply(const int32_t *fds, const int32_t *firsts, const int32_t *counts, int32_t count,
                 const uint8_t *frame, int64_t size, int64_t offset_at,
                 const int64_t *correlations, const int64_t *offsets, uint8_t *scratch,
                 int64_t room, int64_t *sent) {
    int32_t n = 0;
    for (; n < count; n++) {
        uint8_t *at = scratch;
        if (counts[n] > room / size) {
            sent[n] = 0;
            continue;
        }
        for (int32_t row = firsts[n]; row < firsts[n] + counts[n]; row++) {
            memcpy(at, frame, (size_t)size);
            sb_put(at + 4, (uint64_t)correlations[row], 4);
            sb_put(at + offset_at, (uint64_t)offsets[row], 8);
            at += size;
        }
#ifdef _WIN32
        sent[n] = -ENOSYS;
#else
        sent[n] = send(fds[n], scratch, (size_t)(at - scratch), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent[n] < 0) sent[n] = -errno;
#endif
    }
    return n;
}
