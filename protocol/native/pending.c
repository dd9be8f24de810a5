/* The list under send(), and send() itself for the plain record; no lock, no tuple.
 *
 * Two heap types and a method, made once; client/pending_pure.py is their specification.
 *
 *     Ticket    span, index        where a record will be found; a plain pair
 *     Pending   values, keys       what was put since the last take
 *
 * The interpreter's lock is never given up between the look at the length and the append, so a
 * ticket's span and index are right whichever threads put and take.  For that, nothing between them
 * may create an object that the garbage collector knows: up to Python 3.11 a collection begins
 * inside of the allocation and runs foreign code, which may put and take.  A ticket is such an
 * object, because the subclass that Python makes of it is; so it is made first and filled in then.
 * Afterwards it is hidden from the collector, and may be: what it refers to does not refer to it.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <structmember.h>

#include "kernel.h"

enum { DONE, FAILED };

typedef struct {
    PyObject_HEAD
    PyObject *span;
    Py_ssize_t index;
} Ticket;

typedef struct {
    PyObject_HEAD
    PyObject *values, *keys; /* lists; of equal length, or `keys` shorter: without `keyed` */
    PyObject *span;          /* NULL: closed */
    PyObject *ticket_type;
    Py_ssize_t keyed;        /* how many keys are not None */
    Py_ssize_t limit;        /* see put() */
    Py_ssize_t size;         /* bytes of values and keys */
    Py_ssize_t size_max;
} Pending;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DecRef((PyObject *)type);
}

/* An empty one.  The allocation may run foreign code. */
static Ticket *new_ticket(PyTypeObject *type) {
    Ticket *ticket = (Ticket *)PyType_GenericAlloc(type, 0);
    if (ticket && PyObject_GC_IsTracked((PyObject *)ticket)) PyObject_GC_UnTrack(ticket);
    return ticket;
}

static void fill_ticket(Ticket *ticket, PyObject *span, Py_ssize_t index) {
    Py_IncRef(span);
    ticket->span = span;
    ticket->index = index;
}

static PyObject *ticket_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *span;
    Py_ssize_t index;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "span and index are given by position");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "On", &span, &index)) return NULL;
    Ticket *ticket = new_ticket(type);
    if (ticket) fill_ticket(ticket, span, index);
    return (PyObject *)ticket;
}

static void ticket_dealloc(PyObject *self) {
    Py_DecRef(((Ticket *)self)->span);
    free_object(self);
}

static PyObject *pending_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *span, *ticket_type;
    Py_ssize_t size_max;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "span, ticket_type, size_max are given by position");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOn", &span, &ticket_type, &size_max)) return NULL;
    Pending *self = (Pending *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->values = PyList_New(0);
    self->keys = PyList_New(0);
    Py_IncRef(span);
    self->span = span;
    Py_IncRef(ticket_type);
    self->ticket_type = ticket_type;
    self->size_max = size_max;
    if (!self->values || !self->keys) {
        Py_DecRef((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void pending_dealloc(PyObject *object) {
    Pending *self = (Pending *)object;
    Py_DecRef(self->values);
    Py_DecRef(self->keys);
    Py_DecRef(self->span);
    Py_DecRef(self->ticket_type);
    free_object(object);
}

static Py_ssize_t pending_length(PyObject *self) { return PyList_Size(((Pending *)self)->values); }

static PyObject *none(void) {
    Py_IncRef(Py_None);
    return Py_None;
}

/* keys[index] = key, and None for each of those before it that had none. */
static int put_key(PyObject *keys, PyObject *key, Py_ssize_t index) {
    while (PyList_Size(keys) < index) {
        if (PyList_Append(keys, Py_None) < 0) return -1;
    }
    return PyList_Append(keys, key);
}

static PyObject *put(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Pending *self = (Pending *)object;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "put(value, key)");
        return NULL;
    }
    PyObject *value = args[0], *key = args[1];
    const int is_keyed = key != Py_None;
    if (!PyBytes_CheckExact(value)) return none();
    if (is_keyed && !PyBytes_CheckExact(key)) return none();
    const Py_ssize_t size = PyBytes_Size(value) + (is_keyed ? PyBytes_Size(key) : 0);
    if (size > self->size_max) return none();
    Ticket *ticket = new_ticket((PyTypeObject *)self->ticket_type);
    if (!ticket) return NULL;
    /* From here to the appends no object is made: nobody comes between. */
    if (!self->span) {
        Py_DecRef((PyObject *)ticket);
        return none();
    }
    const Py_ssize_t index = PyList_Size(self->values);
    const int is_full = index >= self->limit;
    fill_ticket(ticket, self->span, index);
    if ((is_keyed || self->keyed) && put_key(self->keys, key, index)) {
        Py_DecRef((PyObject *)ticket);
        return NULL;
    }
    if (PyList_Append(self->values, value) < 0) {
        PyList_SetSlice(self->keys, index, index + 1, NULL);
        Py_DecRef((PyObject *)ticket);
        return NULL;
    }
    self->keyed += is_keyed;
    self->size += size;
    if (!is_full) return (PyObject *)ticket;
    PyObject *full = PyTuple_New(1);
    if (full) {
        PyTuple_SetItem(full, 0, (PyObject *)ticket);
        return full;
    }
    /* There is no memory, so nobody came between here, either: it is not taken. */
    PyList_SetSlice(self->values, index, index + 1, NULL);
    PyList_SetSlice(self->keys, index, index + 1, NULL);
    self->keyed -= is_keyed;
    self->size -= size;
    Py_DecRef((PyObject *)ticket);
    return NULL;
}

static PyObject *s_inboxes, *s_pending, *s_turn_in, *s_long_way;
static PyTypeObject *pending_type; /* as sb_pending_types made it, for as long as the process */

static int is_key_alone(PyObject *names) {
    return PyTuple_Size(names) == 1 &&
           !PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "key");
}

/* Any record, by Python: the producer's own send, as it stands in its class. */
static PyObject *send_the_long_way(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names) {
    PyObject *method = PyObject_GetAttr(self, s_long_way), *sent = NULL;
    PyObject *tuple = PyTuple_New(count), *named = PyDict_New();
    int is_good = method && tuple && named;
    for (Py_ssize_t i = 0; is_good && i < count; i++) {
        Py_IncRef(args[i]);
        is_good = !PyTuple_SetItem(tuple, i, args[i]);
    }
    for (Py_ssize_t i = 0; is_good && names && i < PyTuple_Size(names); i++) {
        is_good = !PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i]);
    }
    if (is_good) sent = PyObject_Call(method, tuple, named);
    Py_DecRef(method);
    Py_DecRef(tuple);
    Py_DecRef(named);
    return sent;
}

/* send(topic, value, *, key=None) of a topic that is known: into its inbox; else the long way. */
static PyObject *send_plain(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
    if (count != 2 || !PyUnicode_CheckExact(args[0]) || (names && !is_key_alone(names))) {
        return send_the_long_way(self, args, count, names);
    }
    PyObject *inboxes = PyObject_GetAttr(self, s_inboxes);
    if (!inboxes) return NULL;
    PyObject *inbox = PyDict_GetItemWithError(inboxes, args[0]); /* borrowed */
    Py_IncRef(inbox);
    Py_DecRef(inboxes);
    if (!inbox) {
        return PyErr_Occurred() ? NULL : send_the_long_way(self, args, count, names);
    }
    PyObject *pending = PyObject_GetAttr(inbox, s_pending), *sent = NULL;
    if (pending) {
        PyObject *const record[] = {args[1], names ? args[2] : Py_None};
        /* A list of another kind (the pure twin's, say) is no Pending: the long way knows it. */
        sent = Py_TYPE(pending) == pending_type ? put(pending, record, 2) : none();
        Py_DecRef(pending);
    }
    if (sent && PyTuple_CheckExact(sent)) { /* as many as one batch takes */
        PyObject *ticket = PyTuple_GetItem(sent, 0);
        Py_IncRef(ticket);
        Py_DecRef(sent);
        sent = ticket;
        PyObject *done = PyObject_CallMethodObjArgs(self, s_turn_in, inbox, NULL);
        if (!done) {
            Py_DecRef(sent);
            sent = NULL;
        }
        Py_DecRef(done);
    } else if (sent == Py_None) {
        Py_DecRef(sent);
        sent = send_the_long_way(self, args, count, names);
    }
    Py_DecRef(inbox);
    return sent;
}

/* `send` of a producer's class, into a list of one; `doc` is its docstring and has to stay. */
int sb_send_method(intptr_t out, intptr_t cls, const char *doc) {
    PyGILState_STATE state = PyGILState_Ensure();
    /* Of this class, for as long as the process lives. */
    PyMethodDef *definition = PyMem_Malloc(sizeof *definition);
    PyObject *method = NULL;
    s_inboxes = PyUnicode_InternFromString("_inboxes");
    s_pending = PyUnicode_InternFromString("pending");
    s_turn_in = PyUnicode_InternFromString("_turn_in");
    s_long_way = PyUnicode_InternFromString("_send_the_long_way");
    if (definition && s_inboxes && s_pending && s_turn_in && s_long_way) {
        const PyMethodDef plain = {"send", (PyCFunction)(void (*)(void))send_plain,
                                   METH_FASTCALL | METH_KEYWORDS, doc};
        *definition = plain;
        method = PyDescr_NewMethod((PyTypeObject *)cls, definition);
    }
    if (method) {
        PyList_SetItem((PyObject *)out, 0, method);
    } else {
        PyMem_Free(definition);
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return method ? DONE : FAILED;
}

static PyObject *take(PyObject *object, PyObject *span) {
    Pending *self = (Pending *)object;
    PyObject *values = PyList_New(0), *keys = PyList_New(0), *taken = PyTuple_New(3);
    if (!values || !keys || !taken) {
        Py_DecRef(values);
        Py_DecRef(keys);
        Py_DecRef(taken);
        return NULL;
    }
    /* From here on no object is made: nobody comes between. */
    PyObject *old_keys = self->keys, *old_span = self->span;
    const int is_keyed = self->keyed != 0;
    PyTuple_SetItem(taken, 0, self->values);
    PyTuple_SetItem(taken, 1, is_keyed ? old_keys : none());
    PyTuple_SetItem(taken, 2, old_span ? old_span : none());
    self->values = values;
    self->keys = keys;
    self->keyed = 0;
    self->size = 0;
    if (span == Py_None) {
        self->span = NULL;
    } else {
        Py_IncRef(span);
        self->span = span;
    }
    if (!is_keyed) Py_DecRef(old_keys);
    return taken;
}

static PyMemberDef ticket_members[] = {
    {"span", T_OBJECT, offsetof(Ticket, span), READONLY, NULL},
    {"index", T_PYSSIZET, offsetof(Ticket, index), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef pending_members[] = {
    {"limit", T_PYSSIZET, offsetof(Pending, limit), 0, NULL},
    {"size", T_PYSSIZET, offsetof(Pending, size), READONLY, NULL},
    {"span", T_OBJECT, offsetof(Pending, span), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef pending_methods[] = {
    {"put", (PyCFunction)(void (*)(void))put, METH_FASTCALL, NULL},
    {"take", take, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ticket_slots[] = {
    {Py_tp_new, ticket_new},
    {Py_tp_dealloc, ticket_dealloc},
    {Py_tp_members, ticket_members},
    {0, NULL},
};

static PyType_Slot pending_slots[] = {
    {Py_tp_new, pending_new},         {Py_tp_dealloc, pending_dealloc},
    {Py_tp_members, pending_members}, {Py_tp_methods, pending_methods},
    {Py_sq_length, pending_length},   {0, NULL},
};

static PyType_Spec ticket_spec = {"segbroker.client.pending.Ticket", sizeof(Ticket), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, ticket_slots};
static PyType_Spec pending_spec = {"segbroker.client.pending.Pending", sizeof(Pending), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, pending_slots};

/* Ticket and Pending into the first two places of a list. */
int sb_pending_types(intptr_t out) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *ticket = PyType_FromSpec(&ticket_spec), *pending = PyType_FromSpec(&pending_spec);
    int code = ticket && pending ? DONE : FAILED;
    if (!code) {
        Py_IncRef(pending);
        pending_type = (PyTypeObject *)pending;
        PyList_SetItem((PyObject *)out, 0, ticket);
        PyList_SetItem((PyObject *)out, 1, pending);
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}

static uint32_t murmur2(const uint8_t *data, uint32_t size) {
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28c ^ size, left = size;
    for (; left >= 4; data += 4, left -= 4) {
        uint32_t k = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                     (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
    }
    if (left) {
        for (uint32_t i = 0; i < left; i++) h ^= (uint32_t)data[i] << 8 * i;
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

/* The partition of each key of a list, -1 for None. */
int sb_partitions(intptr_t keys, int32_t count, int32_t partitions_count, int32_t *out) {
    PyGILState_STATE state = PyGILState_Ensure();
    int code = DONE;
    for (Py_ssize_t i = 0; !code && i < count; i++) {
        PyObject *key = PyList_GetItem((PyObject *)keys, i); /* borrowed */
        char *data;
        Py_ssize_t size;
        if (key == Py_None) {
            out[i] = -1;
        } else if (!key || !PyBytes_Check(key) || PyBytes_AsStringAndSize(key, &data, &size) < 0 ||
                   size > INT32_MAX) {
            code = FAILED;
        } else {
            const uint32_t hash = murmur2((const uint8_t *)data, (uint32_t)size);
            out[i] = (int32_t)((hash & 0x7fffffff) % (uint32_t)partitions_count);
        }
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}

/* Append each item of a list to the list that stands at its partition in `out`; -1: the last. */
int sb_scatter(intptr_t out, intptr_t items, const int32_t *partitions, int32_t count) {
    PyGILState_STATE state = PyGILState_Ensure();
    const Py_ssize_t lists = PyList_Size((PyObject *)out);
    int code = DONE;
    for (Py_ssize_t i = 0; !code && i < count; i++) {
        const Py_ssize_t at = partitions[i] < 0 ? lists - 1 : partitions[i];
        PyObject *item = PyList_GetItem((PyObject *)items, i);
        PyObject *list = PyList_GetItem((PyObject *)out, at);
        if (!item || !list || PyList_Append(list, item) < 0) code = FAILED;
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return code;
}
