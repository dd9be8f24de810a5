/* What the kernel offers.  Read twice, by cffi's parser and by the C compiler: plain prototypes
 * only.  Each function is specified by its twin in protocol/batch_pure.py.
 * An intptr_t is the id() of a Python object that the caller keeps alive; see objects.c. */

/* kernel.c: bytes only; runs without the interpreter's lock. */
uint32_t sb_crc32c(uint32_t value, const uint8_t *data, uint64_t size);
uint32_t sb_crc32c_table(uint32_t value, const uint8_t *data, uint64_t size);

int sb_check(const uint8_t *batch, uint64_t size, int mode);

int sb_index(const uint8_t *data, uint64_t position, uint64_t size, int32_t count,
             int64_t base_offset, int32_t last_offset_delta, int64_t base_timestamp,
             int use_append_time, int64_t append_time,
             int32_t *ints, int64_t *longs, int64_t *totals);
void sb_index_headers(const uint8_t *data, uint64_t size, const int32_t *ints, int32_t count,
                      int32_t headers_count, int32_t *header_ints, int64_t *sizes);
int sb_gather(const uint8_t *data, const int32_t *starts, const int32_t *ends, int64_t row,
              int32_t count, uint8_t *out, int64_t out_size, int32_t *offsets, uint8_t *validity);
void sb_header_starts(const int32_t *counts, int32_t count, int32_t *starts);
int64_t sb_select(const uint8_t *data, uint64_t position, uint64_t size, int32_t count,
                  const uint8_t *keep, uint8_t *out, int64_t *latest_delta);
int64_t sb_until_gap(const uint8_t *data, int64_t size, const int64_t *offsets, int64_t count,
                     int64_t *end_offset);

/* objects.c: takes or makes Python objects; holds the lock while it touches them. */
int sb_encode(intptr_t out, intptr_t values, intptr_t keys, intptr_t headers,
              const int64_t *timestamps, int64_t timestamp, int16_t attributes,
              int64_t producer_id, int16_t producer_epoch, int32_t base_sequence);
int sb_slices(intptr_t out, const uint8_t *data, const int32_t *starts, const int32_t *ends,
              int32_t count);
int sb_header_tuples(intptr_t out, const uint8_t *data, const int32_t *counts, int32_t first,
                     int32_t count, const int32_t *header_ints, int32_t headers_count);
int sb_records(intptr_t out, intptr_t record_type, intptr_t prefix, const uint8_t *data,
               int32_t flags, const int32_t *ints, const int64_t *longs, int32_t total,
               int32_t first, int32_t count, intptr_t headers);

/* pending.c: what a producer's send() touches.  Specified by client/pending_pure.py. */
int sb_pending_types(intptr_t out);
int sb_send_method(intptr_t out, intptr_t cls, const char *doc);
int sb_partitions(intptr_t keys, int32_t count, int32_t partitions_count, int32_t *out);
int sb_scatter(intptr_t out, intptr_t items, const int32_t *partitions, int32_t count);

/* produce.c: bytes only; runs without the interpreter's lock.  Specified by
 * protocol/produce_scan_pure.py. */
int32_t sb_scan_produce(const uint8_t *data, int64_t begin, int64_t end, int64_t *columns,
                        int32_t stride, int32_t most, int64_t *stop);
/* Whether two rows go the same way. */
int sb_same_way(const uint8_t *data, const int64_t *columns, int32_t stride, int32_t one,
                int32_t other);

/* exchange.c: sockets and bytes; runs without the interpreter's lock.  Specified by
 * broker/producing/exchange_pure.py. */
int32_t sb_receive_produce(const int32_t *fds, int32_t count, uint8_t *data, int64_t begin,
                           int64_t end, int64_t least, int64_t most, int64_t *columns,
                           int32_t stride, int32_t first, int64_t *results);
int32_t sb_hold_produce(int32_t epoll, int32_t fd, int64_t nanoseconds, uint8_t *data, int64_t end,
                        int64_t most, int64_t *columns, int32_t stride, int64_t *results);
int64_t sb_gather_rows(const uint8_t *data, const int64_t *columns, int32_t stride,
                       const int32_t *rows, int32_t count, uint8_t *out, int64_t room,
                       int64_t *fields);
int32_t sb_reply(const int32_t *fds, const int32_t *firsts, const int32_t *counts, int32_t count,
                 const uint8_t *frame, int64_t size, int64_t offset_at,
                 const int64_t *correlations, const int64_t *offsets, uint8_t *scratch,
                 int64_t room, int64_t *sent);

/* handout.c: what `async for record in consumer` touches.  Specified by client/handout_pure.py. */
int sb_handout_type(intptr_t out);

/* rows.c: the record of a consumer's loop.  Specified by client/records.py. */
int sb_record_type(intptr_t out);
