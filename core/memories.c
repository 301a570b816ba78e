/* Memories from rows of the store. `storage/rows.py` says what the columns mean and does the same in Python; it also
   takes over where a row holds what few do. */

#include "native.h"

/* Columns of a row. */
enum { ID, KIND, TEXT, TITLE, DOMAIN, AGENT, USER, PROJECT, SESSION, TAGS, SOURCE, CONFIDENCE, IMPORTANCE, CREATED, FROM, TO,
       EXPIRES, SUPPORTED, USES, USED, UNUSUAL, WAITING, ROW, COLUMNS };
/* What stands together in one of them. */
enum { POLARITY, STATUS, PINNED, LEVEL, EVIDENCE, SUCCESSES, FAILURES, CONFIRMATIONS, DISPUTES, METADATA, REPLACED, STALE,
       TOGETHER };

/* What rows have in common, and how Python makes what few of them hold. */
typedef struct {
    PyObject *memory, *shared, *scope, *known, *labels, *decode, *usual, *fingerprint, *none, *nothing;
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
    PyObject *user = PyTuple_GetItem(row, USER), *project = PyTuple_GetItem(row, PROJECT),
             *session = PyTuple_GetItem(row, SESSION);
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

/* What stands together in one column, as a list or tuple of its own; NULL where Python has to look at the row. */
static PyObject *together(const Making *making, PyObject *row)
{
    PyObject *unusual = PyTuple_GetItem(row, UNUSUAL);
    if (unusual == Py_None)
        return kept(making->usual);
    PyObject *found = PyUnicode_Check(unusual) ? PyObject_CallFunctionObjArgs(making->decode, unusual, NULL) : NULL;
    if (found != NULL && !(PyList_Check(found) && PyList_Size(found) == TOGETHER))
        Py_CLEAR(found);
    if (found == NULL)
        return NULL;
    PyObject *fixed = PyList_AsTuple(found);
    Py_DECREF(found);
    return fixed;
}

/* One memory; NULL where Python has to look at the row: of one that has an end, waits for something, was replaced or rests
   on others. */
static PyObject *made(const Making *making, PyObject *row)
{
#define COLUMN(name) PyTuple_GetItem(row, name)
#define OTHER(name) PyTuple_GetItem(rest, name)
    if (COLUMN(WAITING) != Py_None || COLUMN(EXPIRES) != Py_None)
        return NULL;
    PyObject *rest = together(making, row), *memory = NULL;
    if (rest == NULL)
        return NULL;
    if (OTHER(REPLACED) == Py_None && is_text(OTHER(EVIDENCE), "[]")) {
        PyObject *scope = scope_of(making, row), *tags = scope == NULL ? NULL : tags_of(making, COLUMN(TAGS)),
                 *pinned = tags == NULL ? NULL : flag(OTHER(PINNED)), *stale = pinned == NULL ? NULL : flag(OTHER(STALE)),
                 *metadata = stale == NULL ? NULL : metadata_of(making, OTHER(METADATA));
        if (metadata != NULL)
            memory = PyObject_CallFunctionObjArgs(
                making->memory, COLUMN(ID), COLUMN(KIND), COLUMN(TEXT), COLUMN(TITLE), COLUMN(DOMAIN), COLUMN(AGENT), scope,
                tags, COLUMN(SOURCE), COLUMN(CONFIDENCE), COLUMN(IMPORTANCE), OTHER(POLARITY), OTHER(STATUS), pinned,
                OTHER(LEVEL), COLUMN(CREATED), COLUMN(FROM), COLUMN(TO), Py_None, COLUMN(SUPPORTED), COLUMN(USED),
                making->nothing, COLUMN(USES) == Py_None ? making->none : COLUMN(USES), OTHER(SUCCESSES), OTHER(FAILURES),
                OTHER(CONFIRMATIONS), OTHER(DISPUTES), Py_None, Py_None, stale, metadata, making->fingerprint, NULL);
        Py_XDECREF(scope);
        Py_XDECREF(tags);
        Py_XDECREF(pinned);
        Py_XDECREF(stale);
        Py_XDECREF(metadata);
    }
    Py_DECREF(rest);
    return memory;
#undef COLUMN
#undef OTHER
}

PyDoc_STRVAR(memories_doc, "memories(rows, fingerprint, now, otherwise, memory, shared, scope, known, labels, decode, usual, /)\n--\n\n"
                           "Memories by row, from rows of the store. What few rows hold is left to `otherwise`, which takes\n"
                           "the row, the fingerprint and the time.");

static PyObject *memories(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("memories", count, 11))
        return NULL;
    PyObject *rows = given[0], *otherwise = given[3];
    Making making = {.memory = given[4], .shared = given[5], .scope = given[6], .known = given[7], .labels = given[8],
                     .decode = given[9], .usual = given[10], .fingerprint = given[1], .none = PyLong_FromLong(0), .nothing = PyTuple_New(0)};
    PyObject *found = making.none == NULL || making.nothing == NULL ? NULL : PyDict_New();
    if (found != NULL && !(PyList_Check(rows) && PyDict_Check(making.known) && PyTuple_Check(making.usual) &&
                           PyTuple_Size(making.usual) == TOGETHER)) {
        PyErr_SetString(PyExc_TypeError, "rows: not a list, nothing known as a dict, or not as many usual columns");
        Py_CLEAR(found);
    }
    for (Py_ssize_t i = 0; found != NULL && i < PyList_Size(rows); i++) {
        PyObject *row = PyList_GetItem(rows, i), *memory = NULL;
        if (!PyTuple_Check(row) || PyTuple_Size(row) != COLUMNS) {
            PyErr_SetString(PyExc_TypeError, "rows: not tuples of as many columns as are read");
            Py_CLEAR(found);
            break;
        }
        if (making.fingerprint != Py_None && (memory = made(&making, row)) == NULL &&
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
