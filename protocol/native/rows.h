/* What rows.c offers to objects.c. */
enum { SB_RECORD_FIELDS = 7 };

/* The class; NULL before sb_record_type. */
extern PyTypeObject *sb_record_class;

/* An instance with these fields, whose references it takes over; NULL without memory: then it has
 * taken none. */
PyObject *sb_new_record(PyObject *const *fields);

/* A tuple of this class without its items, which PyTuple_SetItem puts there; NULL without memory.
 * PyType_GenericAlloc alone leaves a hash of 0 where newer tuples remember theirs. */
PyObject *sb_new_tuple(PyTypeObject *type, Py_ssize_t count);
