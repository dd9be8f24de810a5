/* The border to Python objects: a batch out of lists of bytes, lists of bytes out of a batch.
 *
 * Building bytes objects and named tuples here, instead of slicing in a Python loop, is what
 * makes values() and records() four to six times faster.  Only the limited API is used, so the
 * one abi3 wheel serves every CPython from 3.11 on.
 *
 * cffi releases the interpreter's lock around each call, so each function takes it back while it
 * touches objects.  Objects come as their id(); the caller holds references to them, and to
 * lists that no other thread can see, for as long as the call lasts.  No exception leaves a
 * function: it returns a code, and what it had begun stays a valid object.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include "bytes.h"
#include "kernel.h"
#include "rows.h"

enum result { DONE, NO_MEMORY, TOO_LARGE, TIMESTAMPS_APART, NOT_BYTES };
enum { TIMESTAMPS_DIFFER = 32 }; /* of enum flag in kernel.c */

struct column {
    const uint8_t **starts; /* NULL in it: null */
    int32_t *sizes;
};

/* Where the bytes of a list lie; they stay while the list, which is the caller's alone, does. */
static int read_column(PyObject *list, Py_ssize_t count, struct column *out) {
    out->starts = PyMem_Malloc((size_t)count * sizeof *out->starts);
    out->sizes = PyMem_Malloc((size_t)count * sizeof *out->sizes);
    if (!out->starts || !out->sizes) return NO_MEMORY;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(list, i); /* borrowed */
        char *start;
        Py_ssize_t size;
        if (item == Py_None) {
            out->starts[i] = NULL;
            out->sizes[i] = -1;
            continue;
        }
        if (!item || !PyBytes_Check(item) || PyBytes_AsStringAndSize(item, &start, &size) < 0) {
            PyErr_Clear();
            return NOT_BYTES;
        }
        if (size > INT32_MAX) return TOO_LARGE;
        out->starts[i] = (const uint8_t *)start;
        out->sizes[i] = (int32_t)size;
    }
    return DONE;
}

static void free_column(struct column *column) {
    PyMem_Free(column->starts);
    PyMem_Free(column->sizes);
}

struct batch {
    struct column values, keys, headers; /* keys.starts, headers.starts NULL: there are none */
    const int64_t *timestamps;           /* NULL: all are `timestamp` */
    int64_t timestamp;
    int32_t count;
};

static inline int64_t bytes_size(const struct column *column, int32_t i) {
    const int32_t size = column->starts ? column->sizes[i] : -1;
    return sb_varint_size(size) + (size > 0 ? size : 0);
}

static inline int64_t body_size(const struct batch *batch, int32_t i, int64_t timestamp_delta) {
    return 1 + sb_varint_size(timestamp_delta) + sb_varint_size(i) +
           bytes_size(&batch->keys, i) + bytes_size(&batch->values, i) +
           (batch->headers.starts ? batch->headers.sizes[i] : 1);
}

static inline int64_t timestamp_of(const struct batch *batch, int32_t i) {
    return batch->timestamps ? batch->timestamps[i] : batch->timestamp;
}

/* The size of the whole batch, or minus a result code. */
static int64_t measure(const struct batch *batch) {
    int64_t size = SB_HEADER_SIZE;
    const int64_t base = timestamp_of(batch, 0);
    for (int32_t i = 0; i < batch->count; i++) {
        int64_t delta;
        if (__builtin_sub_overflow(timestamp_of(batch, i), base, &delta)) return -TIMESTAMPS_APART;
        const int64_t body = body_size(batch, i, delta);
        size += sb_varint_size(body) + body;
        if (size > INT32_MAX) return -TOO_LARGE;
    }
    return size;
}

static inline uint8_t *put_bytes(uint8_t *p, const struct column *column, int32_t i) {
    const int32_t size = column->starts ? column->sizes[i] : -1;
    p = sb_put_varint(p, size);
    if (size > 0) {
        memcpy(p, column->starts[i], (size_t)size);
        p += size;
    }
    return p;
}

static void write_batch(const struct batch *batch, uint8_t *out, int64_t size, int16_t attributes,
                        int64_t producer_id, int16_t producer_epoch, int32_t base_sequence) {
    uint8_t *p = out + SB_HEADER_SIZE;
    const int64_t base = timestamp_of(batch, 0);
    int64_t latest = base;
    for (int32_t i = 0; i < batch->count; i++) {
        const int64_t timestamp = timestamp_of(batch, i), delta = timestamp - base;
        if (timestamp > latest) latest = timestamp;
        p = sb_put_varint(p, body_size(batch, i, delta));
        *p++ = 0;
        p = sb_put_varint(p, delta);
        p = sb_put_varint(p, i);
        p = put_bytes(p, &batch->keys, i);
        p = put_bytes(p, &batch->values, i);
        if (batch->headers.starts) {
            memcpy(p, batch->headers.starts[i], (size_t)batch->headers.sizes[i]);
            p += batch->headers.sizes[i];
        } else {
            *p++ = 0;
        }
    }
    uint8_t *h = out;
    h = sb_put(h, 0, 8);
    h = sb_put(h, (uint64_t)(size - SB_LENGTH_END), 4);
    h = sb_put(h, (uint64_t)-1, 4);
    h = sb_put(h, 2, 1);
    h = sb_put(h, 0, 4);
    h = sb_put(h, (uint16_t)attributes, 2);
    h = sb_put(h, (uint64_t)(batch->count - 1), 4);
    h = sb_put(h, (uint64_t)base, 8);
    h = sb_put(h, (uint64_t)latest, 8);
    h = sb_put(h, (uint64_t)producer_id, 8);
    h = sb_put(h, (uint64_t)producer_epoch, 2);
    h = sb_put(h, (uint64_t)base_sequence, 4);
    sb_put(h, (uint64_t)batch->count, 4);
    sb_put(out + SB_CRC_POSITION,
           sb_crc32c(0, out + SB_ATTRIBUTES_POSITION, (uint64_t)size - SB_ATTRIBUTES_POSITION), 4);
}

/* A whole batch as bytes into out[0]; `keys` and `headers` may be 0. */
int sb_encode(intptr_t out, intptr_t values, intptr_t keys, intptr_t headers,
              const int64_t *timestamps, int64_t timestamp, int16_t attributes,
              int64_t producer_id, int16_t producer_epoch, int32_t base_sequence) {
    PyGILState_STATE state = PyGILState_Ensure();
    struct batch batch = {.timestamps = timestamps, .timestamp = timestamp};
    PyObject *result = NULL;
    int64_t size = 0;
    int code = DONE;
    const Py_ssize_t count = PyList_Size((PyObject *)values);
    if (count < 1 || count > INT32_MAX / 8) code = TOO_LARGE;
    batch.count = (int32_t)count;
    if (!code) code = read_column((PyObject *)values, count, &batch.values);
    if (!code && keys) code = read_column((PyObject *)keys, count, &batch.keys);
    if (!code && headers) code = read_column((PyObject *)headers, count, &batch.headers);
    for (Py_ssize_t i = 0; !code && headers && i < count; i++)
        if (batch.headers.sizes[i] < 1) code = NOT_BYTES;
    if (!code) {
        size = measure(&batch);
        if (size < 0) code = (int)-size;
    }
    if (!code && !(result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size))) code = NO_MEMORY;
    if (!code) {
        uint8_t *start = (uint8_t *)PyBytes_AsString(result);
        /* Nobody else knows `result` yet, and bytes in a list that is ours cannot change. */
        PyThreadState *thread = PyEval_SaveThread();
        write_batch(&batch, start, size, attributes, producer_id, producer_epoch, base_sequence);
        PyEval_RestoreThread(thread);
        if (PyList_SetItem((PyObject *)out, 0, result) < 0) code = NO_MEMORY;
    }
    free_column(&batch.values);
    free_column(&batch.keys);
    free_column(&batch.headers);
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}

static PyObject *new_slice(const uint8_t *data, int32_t start, int32_t end) {
    if (start < 0) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    return PyBytes_FromStringAndSize((const char *)data + start, end - start);
}

/* Fill a list of `count` None with slices of `data`; None stays where start is -1. */
int sb_slices(intptr_t out, const uint8_t *data, const int32_t *starts, const int32_t *ends,
              int32_t count) {
    PyGILState_STATE state = PyGILState_Ensure();
    int code = DONE;
    for (int32_t i = 0; !code && i < count; i++) {
        if (starts[i] < 0) continue;
        PyObject *item = new_slice(data, starts[i], ends[i]);
        if (!item || PyList_SetItem((PyObject *)out, i, item) < 0) code = NO_MEMORY;
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}

/* The headers [first, first + count) as a tuple of (str, bytes | None); NULL without memory. */
static PyObject *new_headers(const uint8_t *data, const int32_t *ints, int64_t total,
                             int64_t first, int32_t count) {
    PyObject *all = PyTuple_New(count);
    for (int32_t i = 0; all && i < count; i++) {
        const int64_t at = first + i;
        PyObject *pair = PyTuple_New(2);
        PyObject *key = PyUnicode_DecodeUTF8((const char *)data + ints[at],
                                             ints[total + at] - ints[at], "backslashreplace");
        PyObject *value = new_slice(data, ints[2 * total + at], ints[3 * total + at]);
        if (!pair || !key || !value) {
            Py_DecRef(pair); /* these take NULL */
            Py_DecRef(key);
            Py_DecRef(value);
            Py_DecRef(all);
            return NULL;
        }
        PyTuple_SetItem(pair, 0, key);
        PyTuple_SetItem(pair, 1, value);
        PyTuple_SetItem(all, i, pair);
    }
    return all;
}

/* Fill a list of `count` () with the headers of each record from the first-th on. */
int sb_header_tuples(intptr_t out, const uint8_t *data, const int32_t *counts, int32_t first,
                     int32_t count, const int32_t *header_ints, int32_t headers_count) {
    PyGILState_STATE state = PyGILState_Ensure();
    int64_t at = 0;
    int code = DONE;
    for (int32_t i = 0; i < first; i++) at += counts[i];
    for (int32_t i = 0; !code && i < count; i++) {
        const int32_t own = counts[first + i];
        if (!own) continue;
        PyObject *item = new_headers(data, header_ints, headers_count, at, own);
        if (!item || PyList_SetItem((PyObject *)out, i, item) < 0) code = NO_MEMORY;
        at += own;
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}

enum { RECORD_FIELDS = 5, PREFIX_FIELDS_MAX = 8 };

/* An instance of a named tuple, or NULL; it has taken over the references in both cases. */
static PyObject *new_row(PyTypeObject *type, PyObject *const *fields, Py_ssize_t count) {
    int whole = 1;
    for (Py_ssize_t f = 0; f < count; f++) whole &= fields[f] != NULL;
    PyObject *row = NULL;
    if (whole && type == sb_record_class && count == SB_RECORD_FIELDS) {
        if ((row = sb_new_record(fields))) return row;
    } else if (whole && (row = sb_new_tuple(type, count))) {
        PyObject_GC_UnTrack(row);
        for (Py_ssize_t f = 0; f < count; f++) PyTuple_SetItem(row, f, fields[f]);
        return row;
    }
    for (Py_ssize_t f = 0; f < count; f++) Py_DecRef(fields[f]); /* takes NULL */
    return NULL;
}

/* Fill a list of `count` with instances of `record_type`, a named tuple of (*prefix, offset,
 * timestamp, key, value, headers), from the first-th of `total` records on.  `prefix` is a tuple,
 * the same objects for every record; `headers` is a list of the last fields, or 0: then all are ().
 *
 * The records are hidden from the garbage collector.  They hold numbers, strings and bytes, so
 * they cannot be in a cycle; and collections over a long list of them cost more than they do. */
int sb_records(intptr_t out, intptr_t record_type, intptr_t prefix, const uint8_t *data,
               int32_t flags, const int32_t *ints, const int64_t *longs, int32_t total,
               int32_t first, int32_t count, intptr_t headers) {
    PyGILState_STATE state = PyGILState_Ensure();
    const int64_t n = total;
    const Py_ssize_t own_at = PyTuple_Size((PyObject *)prefix);
    int code = own_at < 0 || own_at > PREFIX_FIELDS_MAX ? TOO_LARGE : DONE;
    PyObject *empty = PyTuple_New(0);
    PyObject *timestamp = NULL; /* one object for all records where they agree */
    PyObject *fields[PREFIX_FIELDS_MAX + RECORD_FIELDS];
    for (Py_ssize_t f = 0; !code && f < own_at; f++)
        fields[f] = PyTuple_GetItem((PyObject *)prefix, f); /* borrowed */
    const Py_ssize_t fields_count = own_at + RECORD_FIELDS;
    for (Py_ssize_t row = 0; !code && row < count; row++) {
        const int64_t i = first + row;
        if (!timestamp || flags & TIMESTAMPS_DIFFER) {
            Py_DecRef(timestamp);
            timestamp = PyLong_FromLongLong(longs[n + i]);
        }
        PyObject **own = fields + own_at;
        own[0] = PyLong_FromLongLong(longs[i]);
        own[1] = timestamp;
        own[2] = new_slice(data, ints[2 * n + i], ints[3 * n + i]);
        own[3] = new_slice(data, ints[i], ints[n + i]);
        own[4] = headers ? PyList_GetItem((PyObject *)headers, row) : empty;
        for (Py_ssize_t f = 0; f < own_at; f++) Py_XINCREF(fields[f]);
        Py_XINCREF(own[1]);
        Py_XINCREF(own[4]);
        PyObject *record = new_row((PyTypeObject *)record_type, fields, fields_count);
        if (!record || PyList_SetItem((PyObject *)out, row, record) < 0) code = NO_MEMORY;
    }
    Py_DecRef(timestamp);
    Py_DecRef(empty);
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}
