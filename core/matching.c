/* The best rows by words for many queries. `storage/segments/matching.py` does the same with numpy, to the last bit:
   parts of a score are added in the same order, and ties go to the smaller row. */

#include "native.h"

/* The postings of a segment, or of the tail. */
typedef struct {
    const uint32_t *docs;
    const void *classes; /* NULL: every posting has an impact of its own */
    int wide;            /* whether classes have four bytes */
    const float *impacts;
    Py_ssize_t postings, kinds;
    const int64_t *starts, *sizes; /* per term */
    const float *worth;
    int64_t base;
    const uint8_t *mask; /* by slot */
    const int64_t *rows;
    float *scores; /* nothing but zeros before and after a query */
    Py_ssize_t slots, most;
} Postings;

/* The best slots so far of one query, best first. */
typedef struct {
    int64_t *slots;
    float *reached;
    int64_t found;
} Best;

static inline int64_t kind_of(const Postings *all, int64_t at)
{
    if (all->classes == NULL)
        return at;
    return all->wide ? ((const uint32_t *)all->classes)[at] : ((const uint16_t *)all->classes)[at];
}

static void take(const Postings *all, Best *best, int64_t slot, float score)
{
    int64_t at = best->found;
    if (at == all->most && score < best->reached[at - 1])
        return;
    while (at > 0 && (score > best->reached[at - 1] ||
                      (score == best->reached[at - 1] && all->rows[slot] < all->rows[best->slots[at - 1]])))
        at--;
    if (at == all->most)
        return;
    int64_t moved = (best->found < all->most ? best->found : all->most - 1) - at;
    memmove(best->slots + at + 1, best->slots + at, (size_t)moved * sizeof *best->slots);
    memmove(best->reached + at + 1, best->reached + at, (size_t)moved * sizeof *best->reached);
    best->slots[at] = slot;
    best->reached[at] = score;
    best->found += best->found < all->most;
}

/* One query; whether all of its postings are sound. */
static int match_one(const Postings *all, const int64_t *terms, const int64_t *end, Best *best)
{
    for (const int64_t *term = terms; term < end; term++) {
        int64_t at = all->starts[*term], last = at + all->sizes[*term];
        float worth = all->worth[*term];
        for (; at < last; at++) {
            int64_t slot = all->base + all->docs[at], kind = kind_of(all, at);
            if (slot >= all->slots || kind >= all->kinds)
                return 0;
            if (all->mask[slot])
                all->scores[slot] += all->impacts[kind] * worth;
        }
    }
    for (const int64_t *term = terms; term < end; term++) {
        int64_t at = all->starts[*term], last = at + all->sizes[*term];
        for (; at < last; at++) {
            int64_t slot = all->base + all->docs[at];
            float score = all->scores[slot];
            all->scores[slot] = 0;
            if (score > 0)
                take(all, best, slot, score);
        }
    }
    return 1;
}

/* Whether numbers never fall and stay between 0 and a limit. */
static int ascending(const int64_t *numbers, Py_ssize_t count, int64_t limit)
{
    int64_t before = 0;
    for (Py_ssize_t i = 0; i < count; before = numbers[i++])
        if (numbers[i] < before || numbers[i] > limit)
            return 0;
    return 1;
}

static int sound(const Postings *all, Py_ssize_t terms, const int64_t *asked, Py_ssize_t flat, const int64_t *queries,
                 Py_ssize_t count, const int64_t *found)
{
    if (!ascending(queries, count + 1, flat))
        return 0;
    for (Py_ssize_t i = 0; i < terms; i++)
        if (all->starts[i] < 0 || all->sizes[i] < 0 || all->starts[i] > all->postings ||
            all->sizes[i] > all->postings - all->starts[i])
            return 0;
    for (Py_ssize_t i = 0; i < flat; i++)
        if (asked[i] < 0 || asked[i] >= terms)
            return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (found[i] < 0 || found[i] > all->most)
            return 0;
    return all->base >= 0;
}

PyDoc_STRVAR(match_doc,
             "match(docs, classes, impacts, starts, sizes, worth, base, terms, queries, mask, rows, scores, out, reached,\n"
             "      found, /)\n--\n\n"
             "Look through the postings of one segment for many queries: `terms` up to the next of `queries` are those of a\n"
             "query. The best slots stay in a row of `out`, what they reached in `reached`, how many there are in `found`.");

static PyObject *match(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 15) {
        PyErr_SetString(PyExc_TypeError, "match takes 15 arguments");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    int done = 0;
    Py_buffer *classes = NULL;
    Py_buffer *docs = array(&buffers, given[0], "docs", 1, 4, 0);
    if (docs != NULL && given[1] != Py_None) {
        classes = array(&buffers, given[1], "classes", 1, 2, 0);
        if (classes == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            classes = array(&buffers, given[1], "classes", 1, 4, 0);
        }
    }
    int there = docs != NULL && (given[1] == Py_None || classes != NULL);
    Py_buffer *impacts = there ? array(&buffers, given[2], "impacts", 1, 4, 0) : NULL;
    Py_buffer *starts = impacts ? array(&buffers, given[3], "starts", 1, 8, 0) : NULL;
    Py_buffer *sizes = starts ? array(&buffers, given[4], "sizes", 1, 8, 0) : NULL;
    Py_buffer *worth = sizes ? array(&buffers, given[5], "worth", 1, 4, 0) : NULL;
    Py_ssize_t base = worth ? PyLong_AsSsize_t(given[6]) : 0;
    if (worth == NULL || (base == -1 && PyErr_Occurred()))
        goto end;
    Py_buffer *terms = array(&buffers, given[7], "terms", 1, 8, 0);
    Py_buffer *queries = terms ? array(&buffers, given[8], "queries", 1, 8, 0) : NULL;
    Py_buffer *mask = queries ? array(&buffers, given[9], "mask", 1, 1, 0) : NULL;
    Py_buffer *rows = mask ? array(&buffers, given[10], "rows", 1, 8, 0) : NULL;
    Py_buffer *scores = rows ? array(&buffers, given[11], "scores", 1, 4, 1) : NULL;
    Py_buffer *out = scores ? array(&buffers, given[12], "out", 2, 8, 1) : NULL;
    Py_buffer *reached = out ? array(&buffers, given[13], "reached", 2, 4, 1) : NULL;
    Py_buffer *found = reached ? array(&buffers, given[14], "found", 1, 8, 1) : NULL;
    if (found == NULL || !long_enough(queries, "queries", 1))
        goto end;
    Py_ssize_t many = queries->shape[0] - 1;
    Postings all = {docs->buf, classes ? classes->buf : NULL, classes && classes->itemsize == 4,
                    impacts->buf, docs->shape[0], impacts->shape[0],
                    starts->buf, sizes->buf, worth->buf, base, mask->buf,
                    rows->buf, scores->buf, scores->shape[0], out->shape[1]};
    if (!long_enough(sizes, "sizes", starts->shape[0]) || !long_enough(worth, "worth", starts->shape[0]) ||
        !long_enough(mask, "mask", all.slots) || !long_enough(rows, "rows", all.slots) ||
        !long_enough(out, "out", many) || !long_enough(reached, "reached", many) ||
        !long_enough(found, "found", many) || (classes && !long_enough(classes, "classes", all.postings)))
        goto end;
    int64_t *counts = found->buf;
    const int64_t *term = terms->buf, *query = queries->buf;
    int right = all.most > 0 && reached->shape[1] == all.most &&
                sound(&all, starts->shape[0], term, terms->shape[0], query, many, counts);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; right && i < many; i++) {
        Best best = {(int64_t *)((char *)out->buf + i * out->strides[0]),
                     (float *)((char *)reached->buf + i * reached->strides[0]), counts[i]};
        right = match_one(&all, term + query[i], term + query[i + 1], &best);
        counts[i] = best.found;
    }
    Py_END_ALLOW_THREADS
    if (right)
        done = 1;
    else
        PyErr_SetString(PyExc_ValueError, "match: a term, a posting or a slot that is not there, or no room for any");
end:
    release(&buffers);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef matching_methods[] = {
    METHOD(match),
    {NULL, NULL, 0, NULL},
};
