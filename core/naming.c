/* The ids of memories from the rows of the index. `storage/segments/naming.py` says how they are kept as numbers and
   spells them in Python. */

#include "inside.h"

#define LONGEST 128 /* bytes of a name that is put before its counters here; Python spells longer ones */
#define DIGITS 20
#define NONE (-1)   /* in place of a counter: the name is the whole id */
#define ABREAST 64  /* rows that are fetched together before the first of them is named */

/* Some rows, and the ids they bear. */
typedef struct {
    Buffers buffers;
    PyObject *names;
    const int64_t *rows;
    const uint32_t *order, *whose;
    const uint8_t *alive;
    const char *counters;
    Py_ssize_t count, width;     /* of the rows; of a counter in bytes */
    Py_ssize_t guessed[ABREAST]; /* where some rows may stand; `count` where they do not */
} Named;

static int is_tuple(PyObject *given)
{
    if (!PyTuple_Check(given))
        PyErr_SetString(PyExc_TypeError, "parts: not a tuple of tuples");
    return PyTuple_Check(given);
}

/* One part from (rows, order, alive, names, whose, counters), where order may be None; whose is, where all share a name. */
static int named_of(PyObject *given, Named *part)
{
    PyObject *rows, *order, *alive, *whose, *counters;
    Py_buffer *view;
    if (!is_tuple(given) ||
        !PyArg_ParseTuple(given, "OOOO!OO", &rows, &order, &alive, &PyTuple_Type, &part->names, &whose, &counters) ||
        (view = array(&part->buffers, rows, "rows", 1, 8, 0)) == NULL)
        return 0;
    part->rows = view->buf;
    part->count = view->shape[0];
    if (order != Py_None) {
        if ((view = array(&part->buffers, order, "order", 1, 4, 0)) == NULL || !long_enough(view, "order", part->count))
            return 0;
        part->order = view->buf;
    }
    if ((view = array(&part->buffers, alive, "alive", 1, 1, 0)) == NULL || !long_enough(view, "alive", part->count))
        return 0;
    part->alive = view->buf;
    if (whose != Py_None) {
        if ((view = array(&part->buffers, whose, "whose", 1, 4, 0)) == NULL || !long_enough(view, "whose", part->count))
            return 0;
        part->whose = view->buf;
    }
    view = &part->buffers.held[part->buffers.count];
    if (PyObject_GetBuffer(counters, view, PyBUF_STRIDES) < 0)
        return 0;
    part->buffers.count++;
    part->width = view->itemsize;
    part->counters = view->buf;
    return told(view->ndim == 1 && (view->itemsize == 4 || view->itemsize == 8) &&
                    (view->shape[0] < 2 || view->strides[0] == view->itemsize),
                "counters: not an array of one axis of four or eight bytes side by side") &&
           long_enough(view, "counters", part->count);
}

/* A name and a counter as one id; the name alone where the counter is none. */
static PyObject *spelt(PyObject *name, int64_t counter)
{
    if (counter == NONE) {
        Py_INCREF(name);
        return name;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL)
        PyErr_Clear(); /* a name with half a character in it */
    if (text == NULL || size > LONGEST || counter < 0)
        return PyUnicode_FromFormat("%U-%lld", name, (long long)counter);
    char id[LONGEST + 1 + DIGITS], digits[DIGITS];
    int count = 0;
    memcpy(id, text, (size_t)size);
    id[size++] = '-';
    do
        digits[count++] = (char)('0' + counter % 10);
    while ((counter /= 10) > 0);
    while (count > 0)
        id[size++] = digits[--count];
    return PyUnicode_FromStringAndSize(id, size);
}

static PyObject *name_at(const Named *part, Py_ssize_t place)
{
    Py_ssize_t whose = part->whose == NULL ? 0 : (Py_ssize_t)part->whose[place];
    PyObject *name = whose < PyTuple_Size(part->names) ? PyTuple_GetItem(part->names, whose) : NULL;
    int64_t counter = 0;
    if (name == NULL || !PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_ValueError, "names: none at a place that some row names");
        return NULL;
    }
    if (part->width == 8)
        memcpy(&counter, part->counters + place * 8, 8);
    else {
        int32_t small;
        memcpy(&small, part->counters + place * 4, 4);
        counter = small;
    }
    return spelt(name, counter);
}

/* Guess where some rows stand, as if no row before them were forgotten, and fetch what is kept there: each step leads to
   the next, and one row after the other they would all be waited for. */
static void guess(Named *part, const int64_t *asked, Py_ssize_t count)
{
    Py_ssize_t first = part->count > 0 && part->order != NULL ? (Py_ssize_t)part->order[0] : 0;
    uint64_t least = first < part->count ? (uint64_t)part->rows[first] : 0, room = (uint64_t)part->count;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)asked[i] - least;
        part->guessed[i] = (Py_ssize_t)(at < room ? at : room);
        if (at < room && part->order != NULL)
            fetch(part->order + at);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t place = part->guessed[i];
        if (place < part->count && part->order != NULL)
            place = (Py_ssize_t)part->order[place];
        part->guessed[i] = place < part->count ? place : part->count;
        if (place < part->count) {
            fetch(part->rows + place);
            fetch(part->alive + place);
            fetch(part->counters + place * part->width);
        }
    }
}

PyDoc_STRVAR(named_doc, "named(parts, asked, /)\n--\n\n"
                        "The ids of some rows as a list; empty for a row that is alive in no part. A part is a tuple of its rows,\n"
                        "their places by ascending row (None where that is their own order), one flag per place for those that are\n"
                        "alive, names, per place which of them (None: the first) and a counter, -1 where the name is all.");

static PyObject *named(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("named", count, 2) || !is_tuple(given[0]))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *asked = array(&buffers, given[1], "asked", 1, 8, 0);
    Py_ssize_t number = PyTuple_Size(given[0]), made = 0;
    Named *parts = asked ? PyMem_Calloc((size_t)number + 1, sizeof *parts) : NULL;
    PyObject *ids = NULL;
    int sound = parts != NULL;
    if (asked != NULL && parts == NULL)
        PyErr_NoMemory();
    while (sound && made < number)
        sound = named_of(PyTuple_GetItem(given[0], made), &parts[made]), made++;
    if (sound)
        sound = (ids = PyList_New(asked->shape[0])) != NULL;
    for (Py_ssize_t i = 0; sound && i < asked->shape[0]; i++) {
        PyObject *id = NULL;
        const int64_t *row = (const int64_t *)asked->buf + i;
        Py_ssize_t left = asked->shape[0] - i;
        for (Py_ssize_t part = 0; i % ABREAST == 0 && part < number; part++)
            guess(&parts[part], row, left < ABREAST ? left : ABREAST);
        for (Py_ssize_t part = 0; part < number && id == NULL && sound; part++) {
            const Named *from = &parts[part];
            Py_ssize_t place = from->guessed[i % ABREAST];
            if (place == from->count || from->rows[place] != *row)
                place = place_of(from->rows, from->order, from->count, *row);
            if (place < from->count && from->alive[place])
                sound = (id = name_at(from, place)) != NULL;
        }
        if (id == NULL && sound)
            sound = (id = PyUnicode_FromStringAndSize("", 0)) != NULL;
        if (id != NULL)
            sound = PyList_SetItem(ids, i, id) == 0;
    }
    for (Py_ssize_t part = 0; part < made; part++)
        release(&parts[part].buffers);
    PyMem_Free(parts);
    release(&buffers);
    if (!sound)
        Py_CLEAR(ids);
    return ids;
}

PyMethodDef naming_methods[] = {
    METHOD(named),
    {NULL, NULL, 0, NULL},
};
