/* Hits from memories and the columns that explain them. `retrieval/pipeline.py` does the same in Python; it also takes
   over where a hit bears a mark that few do. */

#include "native.h"

enum { NUMBERS, FRACTIONS };

/* A column of numbers of eight bytes, whole or not. */
typedef struct {
    Py_buffer view;
    int kind;
} Column;

/* What is made, one entry per hit. */
typedef struct {
    PyObject **signals, **ranks;
    int64_t *lexical, *semantic; /* NULL as long as that rank has not come up */
    Py_ssize_t count;
} Made;

/* 1 where a column is held now; 0 where it is one of another kind, and Python has to look at it; -1 after an error. */
static int hold(Column *column, PyObject *from)
{
    if (PyObject_GetBuffer(from, &column->view, PyBUF_RECORDS_RO) < 0)
        return -1;
    const char *format = column->view.format;
    int plain = column->view.ndim == 1 && column->view.itemsize == 8 && format != NULL && format[0] != '\0' &&
                format[1] == '\0' && strchr("dlq", format[0]) != NULL;
    if (!plain) {
        PyBuffer_Release(&column->view);
        return 0;
    }
    column->kind = format[0] == 'd' ? FRACTIONS : NUMBERS;
    return 1;
}

static const void *entry(const Column *column, int64_t at)
{
    return (const char *)column->view.buf + at * column->view.strides[0];
}

static int64_t number(const Column *column, int64_t at)
{
    int64_t value;
    memcpy(&value, entry(column, at), sizeof value);
    return value;
}

static PyObject *value_of(const Column *column, int64_t at)
{
    double value;
    if (column->kind == NUMBERS)
        return PyLong_FromLongLong(number(column, at));
    memcpy(&value, entry(column, at), sizeof value);
    return PyFloat_FromDouble(value);
}

static int is_named(PyObject *name, const char *plain)
{
    return PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, plain) == 0;
}

/* The ranks that are compared later, set aside. */
static int64_t *set_aside(const Column *column, const int64_t *at, Py_ssize_t count)
{
    int64_t *ranks = PyMem_Malloc((size_t)count * sizeof *ranks);
    for (Py_ssize_t i = 0; ranks != NULL && i < count; i++)
        ranks[i] = number(column, at[i]);
    if (ranks == NULL)
        PyErr_NoMemory();
    return ranks;
}

/* Put what stands in one column into the mapping of each hit; as `hold` where it cannot be done. */
static int spread(PyObject *name, PyObject *from, PyObject **mappings, Made *made, const int64_t *at)
{
    Column column;
    int held = hold(&column, from);
    if (held <= 0)
        return held;
    held = all_within(at, made->count, 0, column.view.shape[0]) ? 1 : -1;
    for (Py_ssize_t i = 0; held > 0 && i < made->count; i++) {
        PyObject *value = value_of(&column, at[i]);
        if (value == NULL || PyDict_SetItem(mappings[i], name, value) < 0)
            held = -1;
        Py_XDECREF(value);
    }
    if (held > 0 && mappings == made->ranks && column.kind == NUMBERS) {
        int64_t **ranks = is_named(name, "lexical") ? &made->lexical : is_named(name, "semantic") ? &made->semantic : NULL;
        if (ranks != NULL && *ranks == NULL && (*ranks = set_aside(&column, at, made->count)) == NULL)
            held = -1;
    }
    PyBuffer_Release(&column.view);
    return held;
}

/* A mapping for each hit, with the names of the columns and what stands in them for it; as `hold`. */
static int explain(PyObject *columns, PyObject **mappings, Made *made, const int64_t *at)
{
    PyObject *name, *from;
    Py_ssize_t place = 0;
    int held = 1;
    for (Py_ssize_t i = 0; i < made->count; i++) /* of the right size, and in the right order, at once */
        if ((mappings[i] = PyDict_Copy(columns)) == NULL)
            return -1;
    while (held > 0 && PyDict_Next(columns, &place, &name, &from))
        held = spread(name, from, mappings, made, at);
    return held;
}

/* Whether two ranks are so far apart that it is worth a mark. */
static int disagree(int64_t one, int64_t other, int64_t sure, double threshold)
{
    int64_t worse = one > other ? one : other, better = one > other ? other : one;
    return worse > sure && (double)(worse - better) / (double)worse > threshold;
}

/* Whether a memory gives its hit a mark by itself; -1 after an error. */
static int is_marked(PyObject *memory)
{
    static PyObject *stale_name, *status_name;
    if (stale_name == NULL && (stale_name = PyUnicode_InternFromString("stale")) == NULL)
        return -1;
    if (status_name == NULL && (status_name = PyUnicode_InternFromString("status")) == NULL)
        return -1;
    PyObject *stale = PyObject_GetAttr(memory, stale_name);
    PyObject *status = stale == NULL ? NULL : PyObject_GetAttr(memory, status_name);
    int marked = status == NULL ? -1 : stale != Py_False || is_named(status, "pending");
    Py_XDECREF(stale);
    Py_XDECREF(status);
    return marked;
}

/* The hits, once everything that explains them is there; NULL after an error. */
static PyObject *put_together(const Made *made, PyObject *make, PyObject *memories, const Column *score, PyObject *mark,
                              int64_t sure, double threshold)
{
    PyObject *hits = PyTuple_New(made->count), *none = PyTuple_New(0);
    int ranked = made->lexical != NULL && made->semantic != NULL;
    if (none == NULL)
        Py_CLEAR(hits);
    for (Py_ssize_t i = 0; hits != NULL && i < made->count; i++) {
        int odd = ranked && disagree(made->lexical[i], made->semantic[i], sure, threshold);
        PyObject *its = value_of(score, i);
        PyObject *hit = its == NULL ? NULL
                                    : PyObject_CallFunctionObjArgs(make, PyList_GetItem(memories, i), its, made->signals[i],
                                                                   made->ranks[i], odd ? mark : none, NULL);
        Py_XDECREF(its);
        if (hit == NULL || PyTuple_SetItem(hits, i, hit) < 0)
            Py_CLEAR(hits);
    }
    Py_XDECREF(none);
    return hits;
}

static void let_go(Made *made)
{
    for (Py_ssize_t i = 0; made->signals != NULL && i < 2 * made->count; i++)
        Py_XDECREF(made->signals[i]);
    PyMem_Free(made->signals);
    PyMem_Free(made->lexical);
    PyMem_Free(made->semantic);
}

PyDoc_STRVAR(hits_doc, "hits(make, memories, at, score, measured, places, mark, sure, threshold, /)\n--\n\n"
                       "A hit of each memory: `make(memory, score, signals, ranks, flags)`. Signals and ranks stand in columns,\n"
                       "at the places `at`. What its ranks by words and by meaning place far apart bears the mark. None where\n"
                       "Python has to look: at a memory that bears a mark by itself, or a column that is not of 64 bits.");

static PyObject *hits(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("hits", count, 9))
        return NULL;
    PyObject *memories = given[1], *found = NULL;
    int64_t sure = PyLong_AsLongLong(given[7]);
    double threshold = PyFloat_AsDouble(given[8]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_Check(memories) || !PyDict_Check(given[4]) || !PyDict_Check(given[5]) || !PyTuple_Check(given[6])) {
        PyErr_SetString(PyExc_TypeError, "hits: memories in a list, columns in dicts, a mark in a tuple");
        return NULL;
    }
    Made made = {.count = PyList_Size(memories)};
    int held = 1;
    for (Py_ssize_t i = 0; held > 0 && i < made.count; i++) {
        int marked = is_marked(PyList_GetItem(memories, i));
        held = marked < 0 ? -1 : !marked;
    }
    Buffers buffers = {.count = 0};
    Column score;
    Py_buffer *at = held <= 0 ? NULL : array(&buffers, given[2], "at", 1, sizeof(int64_t), 0);
    int scored = at == NULL ? 0 : hold(&score, given[3]);
    if (held > 0)
        held = at == NULL || scored < 0 ? -1 : scored;
    if (held > 0 && !(long_enough(at, "at", made.count) && long_enough(&score.view, "score", made.count)))
        held = -1;
    if (held > 0 && (made.signals = PyMem_Calloc((size_t)made.count * 2 + 1, sizeof *made.signals)) == NULL) {
        PyErr_NoMemory();
        held = -1;
    }
    if (held > 0) {
        made.ranks = made.signals + made.count;
        held = explain(given[4], made.signals, &made, at->buf);
    }
    if (held > 0)
        held = explain(given[5], made.ranks, &made, at->buf);
    if (held > 0)
        found = put_together(&made, given[0], memories, &score, given[6], sure, threshold);
    let_go(&made);
    if (scored > 0)
        PyBuffer_Release(&score.view);
    release(&buffers);
    if (held == 0)
        Py_RETURN_NONE;
    return found;
}

PyMethodDef hits_methods[] = {
    METHOD(hits),
    {NULL, NULL, 0, NULL},
};
