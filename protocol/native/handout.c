/* The iterator under `async for record in consumer`: a record that is there costs no coroutine.
 *
 * One heap type, made once by sb_handout_type; client/handout_pure.py is its specification.
 *
 *     __anext__   takes the next item and answers itself; without one the coroutine of refill
 *     __await__   itself; sent to once, it returns the item that was taken, without a turn of
 *                 the event loop
 *
 * It has the methods of a coroutine as well: asyncio makes tasks of what anext() gives.
 *
 * An item that was taken and not awaited stays: the next __anext__ gives a coroutine of its own
 * (`_later`, of protocol/handout_native.py), so none is lost and none is given twice.
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
    PyObject *refill;
    PyObject *items; /* an iterator, or NULL */
    PyObject *taken; /* the item of the last __anext__ that nobody has awaited, or NULL */
} Handout;

static int handout_traverse(PyObject *object, visitproc visit, void *arg) {
    Handout *self = (Handout *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->refill);
    Py_VISIT(self->items);
    Py_VISIT(self->taken);
    return 0;
}

static int handout_clear(PyObject *object) {
    Handout *self = (Handout *)object;
    Py_CLEAR(self->refill);
    Py_CLEAR(self->items);
    Py_CLEAR(self->taken);
    return 0;
}

static void handout_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    handout_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DecRef((PyObject *)type);
}

static PyObject *handout_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *refill;
    if (named && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "refill is given by position");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O", &refill)) return NULL;
    Handout *self = (Handout *)PyType_GenericAlloc(type, 0);
    if (self) {
        Py_IncRef(refill);
        self->refill = refill;
    }
    return (PyObject *)self;
}

static PyObject *myself(PyObject *self) {
    Py_IncRef(self);
    return self;
}

static PyObject *handout_anext(PyObject *object) {
    Handout *self = (Handout *)object;
    if (self->taken) return PyObject_CallMethod(object, "_later", NULL);
    if (self->items && self->items != Py_None) {
        /* Ours while it runs: its code may set another one. */
        PyObject *items = self->items;
        Py_IncRef(items);
        PyObject *item = PyIter_Next(items);
        Py_DecRef(items);
        if (!item && PyErr_Occurred()) return NULL;
        if (self->taken) { /* that code took one, too: this one is dropped */
            Py_DecRef(item); /* takes NULL */
        } else {
            self->taken = item;
        }
    }
    if (self->taken) return myself(object);
    if (!self->refill) { /* cleared by the collector: nobody is to see it again */
        PyErr_SetString(PyExc_RuntimeError, "this iterator is gone");
        return NULL;
    }
    return PyObject_CallFunctionObjArgs(self->refill, object, NULL);
}

/* The item; NULL with RuntimeError when there is none: it was awaited already. */
static PyObject *handout_give(Handout *self) {
    PyObject *item = self->taken;
    self->taken = NULL;
    if (!item) PyErr_SetString(PyExc_RuntimeError, "awaited twice");
    return item;
}

static PySendResult handout_send(PyObject *self, PyObject *sent, PyObject **result) {
    (void)sent;
    *result = handout_give((Handout *)self);
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

/* For who awaits without am_send: anext(iterator, default). */
static PyObject *handout_next(PyObject *self) {
    PyObject *item = handout_give((Handout *)self);
    if (item) {
        /* Made here: of a tuple the interpreter would make the arguments of the exception. */
        PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, item, NULL);
        Py_DecRef(item);
        if (stop) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DecRef(stop);
        }
    }
    return NULL;
}

/* The methods of a coroutine: who makes a task of what __anext__ gives asks for them. */
static PyObject *handout_send_method(PyObject *self, PyObject *sent) {
    (void)sent;
    return handout_next(self);
}

/* Cancelled before it began: the item stays for the next __anext__. */
static PyObject *handout_throw(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *kind, *value = NULL, *trace = NULL;
    if (!PyArg_ParseTuple(args, "O|OO", &kind, &value, &trace)) return NULL;
    if (PyExceptionInstance_Check(kind))
        PyErr_SetObject((PyObject *)Py_TYPE(kind), kind);
    else if (PyExceptionClass_Check(kind))
        PyErr_SetObject(kind, value);
    else
        PyErr_SetString(PyExc_TypeError, "an exception is thrown");
    return NULL;
}

static PyObject *handout_close(PyObject *self, PyObject *none) {
    (void)self;
    Py_IncRef(none = Py_None);
    return none;
}

static PyMethodDef handout_methods[] = {
    {"send", handout_send_method, METH_O, NULL},
    {"throw", handout_throw, METH_VARARGS, NULL},
    {"close", handout_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef handout_members[] = {
    {"items", T_OBJECT, offsetof(Handout, items), 0, NULL},
    {"_taken", T_OBJECT_EX, offsetof(Handout, taken), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot handout_slots[] = {
    {Py_tp_new, handout_new},         {Py_tp_dealloc, handout_dealloc},
    {Py_tp_traverse, handout_traverse}, {Py_tp_clear, handout_clear},
    {Py_tp_members, handout_members}, {Py_tp_iternext, handout_next},
    {Py_tp_methods, handout_methods}, {Py_tp_iter, myself},
    {Py_am_aiter, myself},            {Py_am_anext, handout_anext},
    {Py_am_await, myself},            {Py_am_send, handout_send},
    {0, NULL},
};

/* No base type: am_send is not inherited, and without it an item costs an exception. */
static PyType_Spec handout_spec = {"segbroker.client.handout.Handout", sizeof(Handout), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, handout_slots};

/* Handout into the first place of a list. */
int sb_handout_type(intptr_t out) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type = PyType_FromSpec(&handout_spec);
    if (type) PyList_SetItem((PyObject *)out, 0, type);
    PyErr_Clear();
    PyGILState_Release(state);
    return type ? DONE : FAILED;
}
