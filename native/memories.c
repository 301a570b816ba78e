/* Memories from rows of the store. `storage/rows.py` says what the columns mean and does the same in Python; it also
   takes over where a row holds what few do. */

#include "native.h"

enum { USER = 6, TAGS = 9, PINNED = 15, EXPIRES = 20, EVIDENCE = 22, METADATA = 27, REPLACED = 28,
       STALE = 29, USES = 30, WAITING = 32, ROW = 33, COLUMNS = 34 };
enum { FIELDS = 32 };
/* Which column each field is taken from; -1 where it is not taken as it stands. */
static const signed char COLUMN_OF[FIELDS] = {
    0, 1, 2, 3, 4, 5, -1, -1, 10, 11, 12, 13, 14, -1, 16, 17, 18, 19, 20, 21, 31, -1, -1, 23, 24, 25, 26, -1, -1, -1, -1, -1,
};
enum { F_SCOPE = 6, F_TAGS = 7, F_PINNED = 13, F_EVIDENCE = 21, F_USES = 22, F_SUPERSEDED = 27, F_MERGED = 28, F_STALE = 29,
       F_METADATA = 30, F_EMBEDDER = 31 };

/* What rows have in common, and how Python makes what few of them hold. */
typedef struct {
    PyObject *memory, *shared, *scope, *known, *labels, *decode, *fingerprint, *none, *nothing;
} Making;

static int is_text(PyObject *text, const char *plain)
{
    return PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, plain) == 0;
}

static PyObject *kept(PyObject *value)
{
    Py_INCREF(value);
    return value;
}

static PyObject *flag(PyObject *number)
{
    return PyLong_Check(number) ? PyBool_FromLong(PyObject_IsTrue(number)) : NULL;
}

/* Each of these gives a new reference, or NULL where Python has to look at the row. */
static PyObject *scope_of(const Making *making, PyObject *row)
{
    PyObject *user = PyTuple_GetItem(row, USER), *project = PyTuple_GetItem(row, USER + 1),
             *session = PyTuple_GetItem(row, USER + 2);
    if (user == Py_None && project == Py_None && session == Py_None)
        return kept(making->shared);
    return PyObject_CallFunctionObjArgs(making->scope, user, project, session, NULL);
}

static PyObject *tags_of(const Making *making, PyObject *tags)
{
    PyObject *found = is_text(tags, "[]") ? making->nothing : PyDict_GetItemWithError(making->known, tags);
    if (found == NULL)
        return PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(making->labels, tags, NULL);
    return kept(found);
}

static PyObject *metadata_of(const Making *making, PyObject *metadata)
{
    if (is_text(metadata, "{}"))
        return PyDict_New();
    return PyUnicode_Check(metadata) ? PyObject_CallFunctionObjArgs(making->decode, metadata, NULL) : NULL;
}

/* Whether a row is one of a memory that stands, has no end, waits for nothing and rests on nothing. */
static int is_usual(PyObject *row)
{
    return PyTuple_GetItem(row, WAITING) == Py_None && PyTuple_GetItem(row, EXPIRES) == Py_None &&
           PyTuple_GetItem(row, REPLACED) == Py_None && is_text(PyTuple_GetItem(row, EVIDENCE), "[]");
}

static int put(PyObject *fields, int field, PyObject *value)
{
    return value != NULL && PyTuple_SetItem(fields, field, value) == 0;
}

/* One memory; NULL where Python has to look at the row. */
static PyObject *made(const Making *making, PyObject *row)
{
    PyObject *fields = PyTuple_New(FIELDS), *memory = NULL, *uses = PyTuple_GetItem(row, USES);
    if (fields == NULL)
        return NULL;
    for (int field = 0; field < FIELDS; field++)
        if (COLUMN_OF[field] >= 0)
            PyTuple_SetItem(fields, field, kept(PyTuple_GetItem(row, COLUMN_OF[field])));
    if (put(fields, F_SCOPE, scope_of(making, row)) && put(fields, F_TAGS, tags_of(making, PyTuple_GetItem(row, TAGS))) &&
        put(fields, F_PINNED, flag(PyTuple_GetItem(row, PINNED))) && put(fields, F_EVIDENCE, kept(making->nothing)) &&
        put(fields, F_USES, kept(uses == Py_None ? making->none : uses)) && put(fields, F_SUPERSEDED, kept(Py_None)) &&
        put(fields, F_MERGED, kept(Py_None)) && put(fields, F_STALE, flag(PyTuple_GetItem(row, STALE))) &&
        put(fields, F_METADATA, metadata_of(making, PyTuple_GetItem(row, METADATA))) &&
        put(fields, F_EMBEDDER, kept(making->fingerprint)))
        memory = PyObject_Call(making->memory, fields, NULL);
    Py_DECREF(fields);
    return memory;
}

PyDoc_STRVAR(memories_doc, "memories(rows, fingerprint, now, otherwise, memory, shared, scope, known, labels, decode, /)\n--\n\n"
                           "Memories by row, from rows of the store. What few rows hold is left to `otherwise`, which takes\n"
                           "the row, the fingerprint and the time.");

static PyObject *memories(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("memories", count, 10))
        return NULL;
    PyObject *rows = given[0], *otherwise = given[3];
    Making making = {.memory = given[4], .shared = given[5], .scope = given[6], .known = given[7], .labels = given[8],
                     .decode = given[9], .fingerprint = given[1], .none = PyLong_FromLong(0), .nothing = PyTuple_New(0)};
    PyObject *found = making.none == NULL || making.nothing == NULL ? NULL : PyDict_New();
    if (found != NULL && !(PyList_Check(rows) && PyDict_Check(making.known))) {
        PyErr_SetString(PyExc_TypeError, "rows: not a list, or nothing known as a dict");
        Py_CLEAR(found);
    }
    for (Py_ssize_t i = 0; found != NULL && i < PyList_Size(rows); i++) {
        PyObject *row = PyList_GetItem(rows, i), *memory = NULL;
        if (!PyTuple_Check(row) || PyTuple_Size(row) != COLUMNS) {
            PyErr_SetString(PyExc_TypeError, "rows: not tuples of as many columns as are read");
            Py_CLEAR(found);
            break;
        }
        if (making.fingerprint != Py_None && is_usual(row) && (memory = made(&making, row)) == NULL &&
            PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
            PyErr_Clear(); /* Python meets the same, and says of which memory */
        if (memory == NULL && !PyErr_Occurred()) /* an interrupt is none of ours */
            memory = PyObject_CallFunctionObjArgs(otherwise, row, given[1], given[2], NULL);
        if (memory == NULL || PyDict_SetItem(found, PyTuple_GetItem(row, ROW), memory) < 0)
            Py_CLEAR(found);
        Py_XDECREF(memory);
    }
    Py_XDECREF(making.none);
    Py_XDECREF(making.nothing);
    return found;
}

PyMethodDef memories_methods[] = {
    METHOD(memories),
    {NULL, NULL, 0, NULL},
};
