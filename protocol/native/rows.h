/* What rows.c offers to objects.c. */
enum { SB_RECORD_FIELDS = 7 };

/* The class; NULL before sb_record_type. */
extern PyTypeObject *sb_record_class;

/* An instance with these fields, whose references it takes over; NULL without memory: then it has
 * taken none. */
PyObject *sb_new_record(PyObject *const *fields);
