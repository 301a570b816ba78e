/* The slots that bear a key, such as a tag. */

#include "native.h"

/* Where some things lie that bear one of many keys, which ascend. */
typedef struct {
    Buffers buffers;
    int64_t base;
    const uint32_t *places;
    Py_ssize_t count;
} List;

/* One list from (base, keys, offsets, places), where the places of a key stand between its offset and the next; all of
   them without keys. */
static int list_of(PyObject *given, uint64_t key, List *list)
{
    PyObject *keys, *offsets, *places;
    long long base;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "lists: not a tuple of tuples");
        return 0;
    }
    if (!PyArg_ParseTuple(given, "LOOO", &base, &keys, &offsets, &places))
        return 0;
    Py_buffer *held = array(&list->buffers, places, "places", 1, 4, 0);
    if (held == NULL)
        return 0;
    list->base = base;
    list->places = held->buf;
    list->count = held->shape[0];
    if (keys == Py_None)
        return 1;
    Py_buffer *known = array(&list->buffers, keys, "keys", 1, 8, 0);
    Py_buffer *edges = known ? array(&list->buffers, offsets, "offsets", 1, 8, 0) : NULL;
    if (edges == NULL || !long_enough(edges, "offsets", known->shape[0] + 1))
        return 0;
    Py_ssize_t at = 0, end = known->shape[0];
    while (at < end) {
        Py_ssize_t middle = at + (end - at) / 2;
        if (((const uint64_t *)known->buf)[middle] < key)
            at = middle + 1;
        else
            end = middle;
    }
    int there = at < known->shape[0] && ((const uint64_t *)known->buf)[at] == key;
    int64_t from = there ? ((const int64_t *)edges->buf)[at] : 0, to = there ? ((const int64_t *)edges->buf)[at + 1] : 0;
    if (from < 0 || to < from || to > list->count) {
        PyErr_SetString(PyExc_IndexError, "offsets: not within the places");
        return 0;
    }
    list->places += from;
    list->count = to - from;
    return 1;
}

PyDoc_STRVAR(carrying_doc,
             "carrying(lists, key, mask, out, /)\n--\n\n"
             "Put the slots of a key that the mask admits into `out`, each once; says how many, or -1 where `out` has no room\n"
             "for all of the key. A list is a tuple (base, keys, offsets, places): keys ascend, and the places of one stand\n"
             "between its offset and the next; without keys (None) all places are of the key. Places ascend within a list,\n"
             "and slots from one list to the next.");

static PyObject *carrying(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("carrying", count, 4))
        return NULL;
    if (!PyTuple_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "lists: not a tuple of tuples");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Py_ssize_t number = PyTuple_Size(given[0]), made = 0, size = 0, found = 0;
    uint64_t key = PyLong_AsUnsignedLongLong(given[1]);
    Py_buffer *mask = PyErr_Occurred() ? NULL : array(&buffers, given[2], "mask", 1, 1, 0);
    Py_buffer *out = mask ? array(&buffers, given[3], "out", 1, 8, 1) : NULL;
    List *lists = out ? PyMem_Calloc((size_t)number + 1, sizeof *lists) : NULL;
    int sound = lists != NULL;
    if (out != NULL && lists == NULL)
        PyErr_NoMemory();
    for (; sound && made < number; made++)
        if ((sound = list_of(PyTuple_GetItem(given[0], made), key, &lists[made])) &&
            (sound = all_within(&lists[made].base, 1, 0, mask->shape[0] + 1))) /* so that nothing overflows */
            size += lists[made].count;
    int fits = sound && size <= out->shape[0];
    int64_t last = -1, *to = fits ? out->buf : NULL, room = fits ? mask->shape[0] : 0;
    const uint8_t *flags = fits ? mask->buf : NULL;
    for (Py_ssize_t i = 0; fits && sound && i < number; i++) {
        const uint32_t *places = lists[i].places;
        int64_t base = lists[i].base;
        for (Py_ssize_t at = 0, end = lists[i].count; at < end; at++) {
            int64_t slot = base + places[at];
            if (slot < last || slot >= room) {
                PyErr_SetString(PyExc_IndexError, "lists: slots that do not ascend, or lie outside");
                sound = 0;
                break;
            }
            to[found] = slot; /* fewer were found than looked at, so that there is room for one more */
            found += slot != last && flags[slot];
            last = slot;
        }
    }
    for (Py_ssize_t i = 0; i < made; i++)
        release(&lists[i].buffers);
    PyMem_Free(lists);
    release(&buffers);
    return sound ? PyLong_FromSsize_t(fits ? found : -1) : NULL;
}

PyMethodDef carrying_methods[] = {
    METHOD(carrying),
    {NULL, NULL, 0, NULL},
};
