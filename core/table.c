/* Table: the arrays of an index as searches read them, checked once and held while the table stays as it is.
   `src/skep/index/row_table.py` makes one for every state of its own. */

#include <stdlib.h>

#include "table.h"

#define SLACK 1024 /* slots that memory is asked for beyond those there are */

static int worded_of(PyObject *given, Worded *worded)
{
    PyObject *items[3], *terms;
    if (!is_tuple(given, "words"))
        return 0;
    if (!PyArg_ParseTuple(given, "nOOOO", &worded->base, &terms, &items[0], &items[1], &items[2]))
        return 0;
    return terms_of(&worded->buffers, terms, &worded->terms) && postings_of(&worded->buffers, items, &worded->lists);
}

static int words_of(Table *table, PyObject *given)
{
    Py_ssize_t number = is_tuple(given, "words") ? PyTuple_Size(given) : -1;
    if (number < 0)
        return 0;
    if ((table->worded = calloc((size_t)number + 1, sizeof *table->worded)) == NULL)
        return PyErr_NoMemory() != NULL;
    for (; table->segments < number; table->segments++) {
        Worded *worded = &table->worded[table->segments];
        if (!worded_of(PyTuple_GetItem(given, table->segments), worded)) {
            table->segments++; /* what it holds is given back with the others */
            return 0;
        }
        if (!told(worded->base >= 0 && worded->base <= table->base, "words: they begin outside the table"))
            return 0;
    }
    return 1;
}

static void desk_freed(Desk *desk)
{
    free(desk->sums.scores);
    free(desk->sums.slots);
    free(desk->slots);
    free(desk->values);
    free(desk->room);
    memset(desk, 0, sizeof *desk);
}

int scores_fit(Desk *desk, Py_ssize_t count)
{
    Sums *sums = &desk->sums;
    if (sums->count >= count && sums->scores != NULL)
        return 1;
    free(sums->scores);
    free(sums->slots);
    size_t room = (size_t)count + SLACK;
    *sums = (Sums){calloc(room, sizeof *sums->scores), malloc((room + 1) * sizeof *sums->slots), (Py_ssize_t)room,
                   (Py_ssize_t)room + 1, 0};
    if (sums->scores != NULL && sums->slots != NULL)
        return 1;
    free(sums->scores);
    free(sums->slots);
    *sums = (Sums){0};
    return 0;
}

static int grown(void **memory, Py_ssize_t *room, Py_ssize_t wanted, size_t item)
{
    if (*room >= wanted && *memory != NULL)
        return 1;
    free(*memory);
    *memory = malloc((size_t)wanted * item);
    *room = *memory == NULL ? 0 : wanted;
    return *memory != NULL;
}

int vectors_fit(Desk *desk, const Search *near)
{
    Py_ssize_t most = near->count > near->sample.count ? near->count : near->sample.count;
    Py_ssize_t values = most + near->dim + near->axes_count;
    return grown((void **)&desk->slots, &desk->slots_room, near->count + SLACK, sizeof *desk->slots) &&
           grown((void **)&desk->values, &desk->values_room, values + SLACK, sizeof *desk->values) &&
           grown((void **)&desk->room, &desk->room_room, 2 * (most + SLACK), sizeof *desk->room);
}

static PyObject *table_new(PyTypeObject *type, PyObject *given, PyObject *names)
{
    PyObject *rows, *words, *vectors, *former;
    Py_ssize_t count, base, dim;
    double live;
    if (names != NULL && PyDict_Size(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "Table takes no names");
        return NULL;
    }
    if (!PyArg_ParseTuple(given, "nndOOOnO", &count, &base, &live, &rows, &words, &vectors, &dim, &former))
        return NULL;
    if (former != Py_None && Py_TYPE(former) != type) {
        PyErr_SetString(PyExc_TypeError, "former: not a table");
        return NULL;
    }
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Table *table = (Table *)make(type, 0);
    if (table == NULL)
        return NULL;
    table->count = count;
    table->base = base;
    table->live = live;
    table->near.dim = dim;
    Py_buffer *row = array(&table->buffers, rows, "rows", 1, 8, 0);
    int sound = row != NULL && told(base >= 0 && base <= count && count <= INT32_MAX, "count: too few or too many slots") &&
                told(dim >= 0 && dim < 1 << 23, "dim: more coordinates than can be added up") &&
                long_enough(row, "rows", count) && words_of(table, words) && parts_of(vectors, &table->near) &&
                told(PyTuple_Size(vectors) == 0 || table->near.count == count, "vectors: of another number of slots");
    if (sound) {
        table->rows = row->buf;
        table->near.row = row->buf;
        table->near.tail = base;
        if (former != Py_None && !((Table *)former)->busy) {
            table->desk = ((Table *)former)->desk;
            memset(&((Table *)former)->desk, 0, sizeof table->desk);
        }
        return (PyObject *)table;
    }
    Py_DECREF(table);
    return NULL;
}

static void table_dealloc(PyObject *self)
{
    Table *table = (Table *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t i = 0; i < table->segments; i++)
        release(&table->worded[i].buffers);
    free(table->worded);
    for (Py_ssize_t i = 0; i < table->near.number; i++)
        release(&table->near.parts[i].buffers);
    free(table->near.parts);
    release(&table->framing);
    release(&table->buffers);
    desk_freed(&table->desk);
    freefunc unmake = (freefunc)PyType_GetSlot(type, Py_tp_free);
    unmake(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(frame_doc, "frame(given, /)\n--\n\n"
                        "Let searches ask sketches first: (axes, mean, gain, step, mean size, bits, planes, spread, bias, slots),\n"
                        "where the last four are a sample of them.");

static PyObject *table_frame(PyObject *self, PyObject *given)
{
    Table *table = (Table *)self;
    if (!told(!table->busy, "the table is being searched"))
        return NULL;
    Search framed = table->near;
    Buffers buffers = {.count = 0};
    framed.axes = NULL;
    framed.sample = (Rows){0};
    int sound = frame_of(&buffers, given, &framed) && all_within(framed.sampled, framed.sample.count, 0, framed.count);
    for (Py_ssize_t i = 0; sound && i < framed.number; i++)
        sound = told(!framed.parts[i].sketched || framed.parts[i].rows.words * 64 == framed.axes_count,
                     "frame: sketches of other axes");
    if (!sound)
        return finished(&buffers, 0);
    release(&table->framing);
    table->framing = buffers;
    table->near = framed;
    Py_RETURN_NONE;
}

static PyMethodDef table_methods[] = {
    {"pool", (PyCFunction)(void (*)(void))table_pool, METH_FASTCALL, pool_doc},
    {"frame", table_frame, METH_O, frame_doc},
    {NULL, NULL, 0, NULL},
};

static PyObject *table_framed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((Table *)self)->near.axes != NULL);
}

static PyGetSetDef table_getters[] = {
    {"framed", table_framed, NULL, "Whether searches may ask sketches first.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "Table(count, base, live, rows, words, vectors, dim, former, /)\n--\n\nA table as searches read it: how many\n"
                "slots there are, where the tail begins, how many rows are alive, the row of each slot; the words of every\n"
                "segment, (base, (keys, offsets, dead), docs, classes, impacts); the vectors of every part, the tail too, (base,\n"
                "count, planes, spread, bias, high, low, scale), and their length; and a table that is not asked any more, whose\n"
                "memory this one takes over, or None."},
    {Py_tp_new, table_new},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {Py_tp_getset, table_getters},
    {0, NULL},
};

static PyType_Spec table_spec = {
    .name = "skep._core.Table",
    .basicsize = sizeof(Table),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = table_slots,
};

int tables_fill(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &table_spec, NULL);
    int done = type == NULL ? -1 : PyModule_AddObjectRef(module, "Table", type);
    Py_XDECREF(type);
    return done;
}
