/* BM25 over postings: `storage/segments/lexical.py` says what it means. Everything is added in the order numpy adds
   it, so scores are the same to the last bit. */

#include <math.h>
#include <stdlib.h>

#include "lists.h"

#define FEW 8 /* where one slot in so many was touched, all are set to 0 */

int terms_of(Buffers *buffers, PyObject *given, Terms *terms)
{
    PyObject *keys, *offsets, *dead;
    Py_buffer *key, *offset, *gone = NULL;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "parts: not a tuple of tuples");
        return 0;
    }
    if (!PyArg_ParseTuple(given, "OOO", &keys, &offsets, &dead) || (key = array(buffers, keys, "keys", 1, 8, 0)) == NULL ||
        (offset = array(buffers, offsets, "offsets", 1, 8, 0)) == NULL ||
        (dead != Py_None && (gone = array(buffers, dead, "dead", 1, 8, 0)) == NULL))
        return 0;
    *terms = (Terms){key->buf, offset->buf, gone ? gone->buf : NULL, key->shape[0]};
    return long_enough(offset, "offsets", terms->count + 1) && (gone == NULL || long_enough(gone, "dead", terms->count));
}

int64_t find_one(const Terms *terms, uint64_t key, int64_t *start, int64_t *size)
{
    Py_ssize_t at = 0, end = terms->count;
    while (at < end) {
        Py_ssize_t middle = at + (end - at) / 2;
        if (terms->keys[middle] < key)
            at = middle + 1;
        else
            end = middle;
    }
    int there = at < terms->count && terms->keys[at] == key;
    *start = there ? terms->offsets[at] : 0;
    *size = there ? (int64_t)((uint64_t)terms->offsets[at + 1] - (uint64_t)terms->offsets[at]) : 0;
    return there && terms->dead != NULL ? (int64_t)((uint64_t)*size - (uint64_t)terms->dead[at]) : *size;
}

PyDoc_STRVAR(find_doc, "find(parts, keys, more, live, asked, held, rarity, /)\n--\n\n"
                       "Find terms, given as a list of keys, in parts of (keys, offsets, dead); `dead` (None: nothing) says for\n"
                       "every key how many of its postings are of rows that are not alive. Writes the keys into `asked`, and into\n"
                       "the lines of `held`, for every part, where the postings of each begin and how many there are. The last\n"
                       "line is in how many live rows each stands, with those of a list of `more` (None: no more). `rarity` is\n"
                       "how rare that is among `live` rows.");

static PyObject *find(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("find", count, 7))
        return NULL;
    if (!PyTuple_Check(given[0]) || !PyList_Check(given[1]) || (given[2] != Py_None && !PyList_Check(given[2]))) {
        PyErr_SetString(PyExc_TypeError, "find takes a tuple of parts and lists of numbers");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Py_ssize_t parts = PyTuple_Size(given[0]), terms = PyList_Size(given[1]);
    double live = PyFloat_AsDouble(given[3]);
    Py_buffer *asked = PyErr_Occurred() ? NULL : array(&buffers, given[4], "asked", 1, 8, 1);
    Py_buffer *held = asked ? array(&buffers, given[5], "held", 2, 8, 1) : NULL;
    Py_buffer *rare = held ? array(&buffers, given[6], "rarity", 1, 8, 1) : NULL;
    int sound = rare != NULL && long_enough(asked, "asked", terms) && long_enough(held, "held", 2 * parts + 1) &&
                told(held->shape[1] >= terms, "held: too short for the keys") && long_enough(rare, "rarity", terms) &&
                told(given[2] == Py_None || PyList_Size(given[2]) >= terms, "more: too short for the keys");
    char *lines = sound ? held->buf : NULL;
    Py_ssize_t stride = sound ? held->strides[0] : 0;
    int64_t *found = sound ? (int64_t *)(lines + 2 * parts * stride) : NULL;
    for (Py_ssize_t i = 0; sound && i < terms; i++) {
        ((uint64_t *)asked->buf)[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(given[1], i));
        found[i] = given[2] == Py_None || PyErr_Occurred() ? 0 : PyLong_AsLongLong(PyList_GetItem(given[2], i));
        sound = !PyErr_Occurred();
    }
    for (Py_ssize_t part = 0; sound && part < parts; part++) {
        Buffers own = {.count = 0};
        Terms from;
        int64_t *starts = (int64_t *)(lines + 2 * part * stride), *sizes = (int64_t *)(lines + (2 * part + 1) * stride);
        sound = terms_of(&own, PyTuple_GetItem(given[0], part), &from);
        for (Py_ssize_t i = 0; sound && i < terms; i++) {
            int64_t here = find_one(&from, ((const uint64_t *)asked->buf)[i], &starts[i], &sizes[i]);
            found[i] = (int64_t)((uint64_t)found[i] + (uint64_t)here); /* as numpy adds, whatever a file says */
        }
        release(&own);
    }
    for (Py_ssize_t i = 0; sound && i < terms; i++)
        ((double *)rare->buf)[i] = rarity(live, found[i]);
    return finished(&buffers, sound);
}


int postings_of(Buffers *buffers, PyObject *const *given, Lists *lists)
{
    Py_buffer *docs = array(buffers, given[0], "docs", 1, 4, 0);
    Py_buffer *classes = NULL;
    if (docs != NULL && given[1] != Py_None) {
        classes = array(buffers, given[1], "classes", 1, 2, 0);
        if (classes == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            classes = array(buffers, given[1], "classes", 1, 4, 0);
        }
        docs = classes == NULL ? NULL : docs;
    }
    Py_buffer *impacts = docs ? array(buffers, given[2], "impacts", 1, 4, 0) : NULL;
    if (impacts == NULL)
        return 0;
    *lists = (Lists){.docs = docs->buf, .classes = classes ? classes->buf : NULL, .wide = classes && classes->itemsize == 4,
                     .impacts = impacts->buf, .kinds = impacts->shape[0], .postings = docs->shape[0]};
    return classes == NULL || long_enough(classes, "classes", docs->shape[0]);
}

int all_inside(const Lists *lists)
{
    for (Py_ssize_t term = 0; term < lists->terms; term++) {
        int64_t start = lists->starts[term], size = lists->sizes[term];
        if (start < 0 || size < 0 || start > lists->postings || size > lists->postings - start)
            return 0;
    }
    return 1;
}

/* Lists from six arguments on; every stretch of them lies within the arrays. */
static int lists_of(Buffers *buffers, PyObject *const *given, Lists *lists)
{
    Py_buffer *starts = postings_of(buffers, given, lists) ? array(buffers, given[3], "starts", 1, 8, 0) : NULL;
    Py_buffer *sizes = starts ? array(buffers, given[4], "sizes", 1, 8, 0) : NULL;
    Py_buffer *worths = sizes ? array(buffers, given[5], "worths", 1, 4, 0) : NULL;
    if (worths == NULL)
        return 0;
    lists->worths = worths->buf;
    lists->starts = starts->buf;
    lists->sizes = sizes->buf;
    lists->terms = starts->shape[0];
    if (!long_enough(sizes, "sizes", lists->terms) || !long_enough(worths, "worths", lists->terms))
        return 0;
    if (!all_inside(lists))
        PyErr_SetString(PyExc_IndexError, OUTSIDE);
    return !PyErr_Occurred();
}

static inline Py_ssize_t kind_of(const Lists *lists, Py_ssize_t at)
{
    if (lists->classes == NULL)
        return at;
    return lists->wide ? (Py_ssize_t)((const uint32_t *)lists->classes)[at]
                       : (Py_ssize_t)((const uint16_t *)lists->classes)[at];
}

int add_up(const Lists *lists, const Term *terms, Py_ssize_t base, Sums *sums)
{
    Py_ssize_t left = sums->count - base;
    float *scores = sums->scores + base;
    for (Py_ssize_t rank = 0; rank < lists->terms; rank++) {
        Py_ssize_t term = terms[rank].at, end = (Py_ssize_t)(lists->starts[term] + lists->sizes[term]);
        float worth = lists->worths[term];
        for (Py_ssize_t i = (Py_ssize_t)lists->starts[term]; i < end; i++) {
            Py_ssize_t doc = lists->docs[i], kind = kind_of(lists, i);
            if (doc >= left || kind >= lists->kinds || sums->filled >= sums->room)
                return 0;
            float before = scores[doc], after = before + lists->impacts[kind] * worth;
            scores[doc] = after;
            sums->slots[sums->filled] = base + doc;
            sums->filled += before == 0 && after != 0;
        }
    }
    return 1;
}

int clear(Sums *sums)
{
    if (sums->filled < 0 || sums->filled > sums->room || sums->filled > sums->count / FEW)
        memset(sums->scores, 0, (size_t)sums->count * sizeof *sums->scores);
    else
        for (Py_ssize_t i = 0; i < sums->filled; i++) {
            if ((uint64_t)sums->slots[i] >= (uint64_t)sums->count)
                return 0;
            sums->scores[sums->slots[i]] = 0;
        }
    sums->filled = 0;
    return 1;
}

int rarest_first(const void *left, const void *right)
{
    const Term *one = left, *other = right;
    if (one->worth != other->worth)
        return one->worth > other->worth ? -1 : 1;
    if (one->key != other->key)
        return one->key < other->key ? -1 : 1;
    return (one->at > other->at) - (one->at < other->at);
}

/* Where a row stands among the ascending rows of a term, or would stand. */
static Py_ssize_t lower(const uint32_t *docs, Py_ssize_t count, uint32_t doc)
{
    Py_ssize_t at = 0;
    while (count > 0) {
        Py_ssize_t half = count / 2;
        int before = docs[at + half] < doc;
        at += before ? half + 1 : 0;
        count = before ? count - half - 1 : half;
    }
    return at;
}

/* What each term (column) gives to each place (row of `out`); 0 where a class leads out of the impacts. */
static int look_at(const Lists *lists, const int64_t *places, Py_ssize_t count, int64_t base, char *out,
                   Py_ssize_t stride)
{
    for (Py_ssize_t term = 0; term < lists->terms; term++) {
        const uint32_t *docs = lists->docs + lists->starts[term];
        Py_ssize_t size = (Py_ssize_t)lists->sizes[term];
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t doc = (uint64_t)places[i] - (uint64_t)base; /* huge where it lies before the base */
            Py_ssize_t at = doc > UINT32_MAX ? size : lower(docs, size, (uint32_t)doc);
            float gain = 0;
            if (at < size && docs[at] == doc) {
                Py_ssize_t kind = kind_of(lists, (Py_ssize_t)lists->starts[term] + at);
                if (kind >= lists->kinds)
                    return 0;
                gain = lists->impacts[kind] * lists->worths[term];
            }
            ((float *)(out + i * stride))[term] = gain;
        }
    }
    return 1;
}

PyDoc_STRVAR(gains_doc, "gains(docs, classes, impacts, starts, sizes, worths, places, base, out, /)\n--\n\n"
                        "What each term gives to each place, a row of `out`; a place, less the base, is a row of a term.");

static PyObject *gains(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("gains", count, 9))
        return NULL;
    Buffers buffers = {.count = 0};
    Lists lists;
    int sound = lists_of(&buffers, given, &lists);
    Py_buffer *places = sound ? array(&buffers, given[6], "places", 1, 8, 0) : NULL;
    Py_ssize_t base = places ? PyLong_AsSsize_t(given[7]) : -1;
    Py_buffer *out = places && !PyErr_Occurred() ? array(&buffers, given[8], "out", 2, 4, 1) : NULL;
    sound = out != NULL && long_enough(out, "out", places->shape[0]);
    if (sound && out->shape[1] < lists.terms) {
        PyErr_SetString(PyExc_ValueError, "out: fewer columns than terms");
        sound = 0;
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        sound = look_at(&lists, places->buf, places->shape[0], base, out->buf, out->strides[0]);
        Py_END_ALLOW_THREADS
        if (!sound)
            PyErr_SetString(PyExc_IndexError, OUTSIDE);
    }
    return finished(&buffers, sound);
}

PyMethodDef postings_methods[] = {
    METHOD(find),
    METHOD(gains),
    {NULL, NULL, 0, NULL},
};
