/* The best rows by words for many queries. `storage/segments/matching.py` does the same with numpy, to the last bit:
   parts of a score are added in the same order, and ties go to the smaller row. */

#include "native.h"

/* Postings of terms: a row and what the term gives to it. */
typedef struct {
    const int64_t *slots;
    const float *gains;
    const int64_t *ranges;  /* [..][2]: where the postings of a term begin and end */
    const int64_t *queries; /* [count + 1]: which of those belong to a query */
    Py_ssize_t count;
    const int64_t *rows; /* by slot */
    float *scores;       /* by slot; nothing but zeros before and after a query */
    Py_ssize_t most;
} Matching;

/* The best slots of one query, best first; how many there are. */
static Py_ssize_t best(const Matching *all, Py_ssize_t query, int64_t *out, float *reached)
{
    const int64_t *first = all->ranges + 2 * all->queries[query], *last = all->ranges + 2 * all->queries[query + 1];
    Py_ssize_t found = 0;
    for (const int64_t *range = first; range < last; range += 2)
        for (int64_t i = range[0]; i < range[1]; i++)
            all->scores[all->slots[i]] += all->gains[i];
    for (const int64_t *range = first; range < last; range += 2)
        for (int64_t i = range[0]; i < range[1]; i++) {
            int64_t slot = all->slots[i];
            float score = all->scores[slot];
            all->scores[slot] = 0;
            if (!(score > 0) || (found == all->most && score < reached[found - 1]))
                continue;
            Py_ssize_t at = found;
            while (at > 0 && (score > reached[at - 1] ||
                              (score == reached[at - 1] && all->rows[slot] < all->rows[out[at - 1]])))
                at--;
            if (at == all->most)
                continue;
            Py_ssize_t moved = (found < all->most ? found : all->most - 1) - at;
            memmove(out + at + 1, out + at, (size_t)moved * sizeof *out);
            memmove(reached + at + 1, reached + at, (size_t)moved * sizeof *reached);
            out[at] = slot;
            reached[at] = score;
            found += found < all->most;
        }
    return found;
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

static int sound(const Matching *all, Py_ssize_t postings, Py_ssize_t ranges, Py_ssize_t slots)
{
    if (!ascending(all->queries, all->count + 1, ranges))
        return 0;
    for (Py_ssize_t i = 0; i < ranges; i++)
        if (all->ranges[2 * i] < 0 || !ascending(all->ranges + 2 * i, 2, postings))
            return 0;
    for (Py_ssize_t i = 0; i < postings; i++)
        if (all->slots[i] < 0 || all->slots[i] >= slots)
            return 0;
    return 1;
}

PyDoc_STRVAR(match_doc, "match(slots, gains, ranges, queries, rows, scores, out, found, /)\n--\n\n"
                        "Put the best slots of every query into a row of `out`, and how many there are into `found`.");

static PyObject *match(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "match takes 8 arguments");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    float *reached = NULL;
    int done = 0;
    Py_buffer *slots = array(&buffers, given[0], "slots", 1, 8, 0);
    Py_buffer *gains = slots ? array(&buffers, given[1], "gains", 1, 4, 0) : NULL;
    Py_buffer *ranges = gains ? array(&buffers, given[2], "ranges", 2, 8, 0) : NULL;
    Py_buffer *queries = ranges ? array(&buffers, given[3], "queries", 1, 8, 0) : NULL;
    Py_buffer *rows = queries ? array(&buffers, given[4], "rows", 1, 8, 0) : NULL;
    Py_buffer *scores = rows ? array(&buffers, given[5], "scores", 1, 4, 1) : NULL;
    Py_buffer *out = scores ? array(&buffers, given[6], "out", 2, 8, 1) : NULL;
    Py_buffer *found = out ? array(&buffers, given[7], "found", 1, 8, 1) : NULL;
    if (found == NULL || !long_enough(gains, "gains", slots->shape[0]) ||
        !long_enough(rows, "rows", scores->shape[0]) || !long_enough(queries, "queries", 1) ||
        !long_enough(out, "out", queries->shape[0] - 1) || !long_enough(found, "found", queries->shape[0] - 1))
        goto end;
    Matching all = {slots->buf, gains->buf, ranges->buf, queries->buf, queries->shape[0] - 1,
                    rows->buf, scores->buf, out->shape[1]};
    if (all.most < 1 || ranges->shape[1] != 2 || (ranges->shape[0] > 1 && ranges->strides[0] != 16) ||
        !sound(&all, slots->shape[0], ranges->shape[0], scores->shape[0])) {
        PyErr_SetString(PyExc_ValueError, "match: a range or a slot that is not there, or no room for any");
        goto end;
    }
    reached = PyMem_Malloc((size_t)all.most * sizeof *reached);
    if (reached == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t query = 0; query < all.count; query++)
        ((int64_t *)found->buf)[query] =
            best(&all, query, (int64_t *)((char *)out->buf + query * out->strides[0]), reached);
    Py_END_ALLOW_THREADS
    done = 1;
end:
    PyMem_Free(reached);
    release(&buffers);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef matching_methods[] = {
    {"match", (PyCFunction)(void (*)(void))match, METH_FASTCALL, match_doc},
    {NULL, NULL, 0, NULL},
};
