/* BM25: the postings of the terms of a query are added up, term by term, the rarest first. The oracle is `score_words`
   in `src/skep/index/bm25.py`; `search.c` calls it. */

#include <math.h>
#include <stdlib.h>

#include "bm25.h"

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
