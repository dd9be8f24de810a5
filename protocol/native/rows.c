/* The record that a consumer hands out: a named tuple that is cheap to make, to look at, to drop.
 *
 * One heap type, made once by sb_record_type.  client/records.py is its specification and gives it
 * the methods of a named tuple; here is where its fields lie, and how it comes and goes:
 *
 *     head of a tuple | topic | partition | offset | timestamp_ms | key | value | headers
 *                     ^ fields_at: the items of every tuple lie there, tuple.__basicsize__
 *
 * A field is a member in a fixed place, which the interpreter reads without a call; a named tuple
 * has descriptors that it has to call.  So each instance, of derived classes too, has all its
 * fields: it comes from record_new or sb_new_record, and tuple.__new__ is refused.
 *
 * Instances made here are unknown to the garbage collector.  They hold numbers, strings and bytes,
 * so they are in no cycle, and collections over a long list of them cost more than they do.  Those
 * that others make are known to it, as every tuple's subclass has to be.
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <string.h>
#include <structmember.h>

#include "kernel.h"
#include "rows.h"

enum { DONE, FAILED };

PyTypeObject *sb_record_class;
static Py_ssize_t fields_at; /* 0: not yet asked */

/* Whether it is known where the items of a tuple lie; to be asked before a tuple is made. */
static int know_tuples(void) {
    if (!fields_at) {
        PyObject *size = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__basicsize__");
        const Py_ssize_t found = size ? PyLong_AsSsize_t(size) : -1;
        Py_DecRef(size); /* takes NULL */
        if (found > 0) fields_at = found;
    }
    return fields_at > 0;
}

static PyObject **fields_of(PyObject *record) { return (PyObject **)((char *)record + fields_at); }

/* Newer tuples remember their hash in front of the items; -1: not yet. */
static void forget_hash(PyObject *tuple) {
    const size_t head = sizeof(PyVarObject);
    memset((char *)tuple + head, 0xff, (size_t)fields_at - head);
}

PyObject *sb_new_tuple(PyTypeObject *type, Py_ssize_t count) {
    PyObject *tuple = know_tuples() ? PyType_GenericAlloc(type, count) : NULL;
    if (tuple) forget_hash(tuple);
    return tuple;
}

PyObject *sb_new_record(PyObject *const *fields) {
    PyObject *record = (PyObject *)PyObject_GC_NewVar(PyVarObject, sb_record_class, SB_RECORD_FIELDS);
    if (!record) return NULL;
    forget_hash(record);
    memcpy(fields_of(record), fields, SB_RECORD_FIELDS * sizeof(PyObject *));
    return record;
}

/* Record(topic, ...); of a derived class, too.  tuple.__new__ refuses a type that has one. */
static PyObject *record_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    static char *names[] = {"topic", "partition", "offset",  "timestamp_ms",
                            "key",   "value",     "headers", NULL};
    PyObject *own[SB_RECORD_FIELDS];
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOOOOO:Record", names, &own[0], &own[1],
                                     &own[2], &own[3], &own[4], &own[5], &own[6]))
        return NULL;
    PyObject *record = sb_new_tuple(type, SB_RECORD_FIELDS);
    if (!record) return NULL;
    for (int f = 0; f < SB_RECORD_FIELDS; f++) {
        Py_IncRef(own[f]);
        fields_of(record)[f] = own[f];
    }
    return record;
}

static int record_traverse(PyObject *self, visitproc visit, void *arg) {
    PyObject **fields = fields_of(self);
    Py_VISIT(Py_TYPE(self));
    for (int f = 0; f < SB_RECORD_FIELDS; f++) Py_VISIT(fields[f]);
    return 0;
}

static void record_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject **fields = fields_of(self);
    PyObject_GC_UnTrack(self);
    for (int f = 0; f < SB_RECORD_FIELDS; f++) Py_XDECREF(fields[f]);
    PyObject_GC_Del(self);
    Py_DecRef((PyObject *)type);
}

#define FIELD(name) {name, T_OBJECT_EX, 0, READONLY, NULL}
static PyMemberDef record_members[] = {
    FIELD("topic"), FIELD("partition"), FIELD("offset"),  FIELD("timestamp_ms"),
    FIELD("key"),   FIELD("value"),     FIELD("headers"), {NULL, 0, 0, 0, NULL},
};

/* What inspect.signature() reads; help() shows the specification's. */
static const char record_doc[] =
    "Record(topic, partition, offset, timestamp_ms, key, value, headers)\n--\n\n";

static PyType_Slot record_slots[] = {
    {Py_tp_doc, (char *)record_doc},   {Py_tp_new, record_new},
    {Py_tp_dealloc, record_dealloc},   {Py_tp_free, PyObject_GC_Del},
    {Py_tp_traverse, record_traverse}, {Py_tp_members, record_members},
    {0, NULL},
};

static PyType_Spec record_spec = {
    "segbroker.client.records.Record", 0, 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, record_slots};

/* Record, a subclass of tuple without methods of its own, into the first place of a list. */
int sb_record_type(intptr_t out) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *bases = know_tuples() ? PyTuple_Pack(1, (PyObject *)&PyTuple_Type) : NULL;
    for (int f = 0; f < SB_RECORD_FIELDS; f++)
        record_members[f].offset = fields_at + f * (Py_ssize_t)sizeof(PyObject *);
    PyObject *type = bases ? PyType_FromSpecWithBases(&record_spec, bases) : NULL;
    Py_DecRef(bases); /* takes NULL */
    if (type) {
        Py_IncRef(type); /* one reference is ours, for good */
        sb_record_class = (PyTypeObject *)type;
        PyList_SetItem((PyObject *)out, 0, type);
    }
    PyErr_Clear();
    PyGILState_Release(state);
    return type ? DONE : FAILED;
}
