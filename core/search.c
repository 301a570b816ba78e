/* A search from the terms and the vector of a query to its candidates, in one call of `Table.pool`. */

#include <stdlib.h>

#include "table.h"

#define FEW 64 /* numbers that no memory is asked for */

/* The terms of a question, in every segment and in the tail. */
typedef struct {
    Term *terms;
    float *worths;
    int64_t *places; /* of every part, where the postings of each term begin, and then how many there are */
    Py_ssize_t count;
    Lists tail;
    Buffers buffers;
    void *more;
    int64_t few_places[FEW];
    Term few_terms[FEW];
    float few_worths[FEW];
} Asked;

/* Room for the terms of a question; what was asked for is freed by `put_down`. */
static int taken_up(const Table *table, PyObject *keys, PyObject *factors, Asked *asked)
{
    asked->buffers.count = 0;
    asked->more = NULL;
    memset(&asked->tail, 0, sizeof asked->tail);
    if (!PyList_Check(keys) || (factors != Py_None && !PyList_Check(factors))) {
        PyErr_SetString(PyExc_TypeError, "keys, factors: not lists");
        return 0;
    }
    asked->count = PyList_Size(keys);
    if (!told(factors == Py_None || PyList_Size(factors) == asked->count, "factors: not as many as keys"))
        return 0;
    size_t places = (size_t)(2 * table->segments + 3) * (size_t)asked->count;
    asked->places = asked->few_places;
    asked->terms = asked->few_terms;
    asked->worths = asked->few_worths;
    if (places <= FEW)
        return 1;
    asked->more = malloc(places * sizeof(int64_t) + (size_t)asked->count * (sizeof(Term) + sizeof(float)));
    if (asked->more == NULL)
        return PyErr_NoMemory() != NULL;
    asked->places = asked->more;
    asked->terms = (Term *)(asked->places + places);
    asked->worths = (float *)(asked->terms + asked->count);
    return 1;
}

static void put_down(Asked *asked)
{
    free(asked->more);
    release(&asked->buffers);
}

/* The terms of a question by their keys, each with a factor, and those of the tail: (how many postings of each, docs,
   impacts). */
static int asked_of(const Table *table, PyObject *keys, PyObject *factors, PyObject *tail, Asked *asked)
{
    Py_ssize_t count = asked->count;
    int64_t *found = asked->places + 2 * (table->segments + 1) * count; /* in how many live rows each stands */
    int64_t *starts = asked->places + 2 * table->segments * count, *sizes = starts + count, end = 0;
    PyObject *more = NULL, *postings[3] = {NULL, Py_None, NULL};
    if (tail != Py_None) {
        if (!is_tuple(tail, "tail") || !PyArg_ParseTuple(tail, "OOO", &more, &postings[0], &postings[2]) ||
            !postings_of(&asked->buffers, postings, &asked->tail))
            return 0;
        if (!PyList_Check(more) || PyList_Size(more) != count) {
            PyErr_SetString(PyExc_ValueError, "tail: not as many numbers as keys");
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        asked->terms[i] = (Term){0, PyLong_AsUnsignedLongLong(PyList_GetItem(keys, i)), i};
        int64_t here = more == NULL || PyErr_Occurred() ? 0 : PyLong_AsLongLong(PyList_GetItem(more, i));
        double factor = factors == Py_None || PyErr_Occurred() ? 1.0 : PyFloat_AsDouble(PyList_GetItem(factors, i));
        if (PyErr_Occurred())
            return 0;
        starts[i] = end;
        sizes[i] = found[i] = here;
        end = (int64_t)((uint64_t)end + (uint64_t)here);
        for (Py_ssize_t part = 0; part < table->segments; part++) {
            int64_t *place = asked->places + 2 * part * count + i;
            int64_t live = find_one(&table->worded[part].terms, asked->terms[i].key, place, place + count);
            found[i] = (int64_t)((uint64_t)found[i] + (uint64_t)live); /* as numpy adds, whatever a file says */
        }
        asked->worths[i] = asked->terms[i].worth = (float)(rarity(table->live, found[i]) * factor);
    }
    qsort(asked->terms, (size_t)count, sizeof *asked->terms, rarest_first);
    return 1;
}

/* Scores of the words that were asked for; 0 where a posting leads out of the arrays. */
static int scored(Table *table, Asked *asked)
{
    Sums *sums = &table->desk.sums;
    Py_ssize_t room = sums->count;
    int sound = clear(sums);
    if (asked->count == 0 || !(table->live > 0))
        return sound;
    sums->count = table->count; /* no posting leads further */
    for (Py_ssize_t part = 0; sound && part <= table->segments; part++) {
        int last = part == table->segments;
        Lists lists = last ? asked->tail : table->worded[part].lists;
        lists.worths = asked->worths;
        lists.starts = asked->places + 2 * part * asked->count;
        lists.sizes = lists.starts + asked->count;
        lists.terms = asked->count;
        sound = (last && lists.docs == NULL) ||
                (all_inside(&lists) && add_up(&lists, asked->terms, last ? table->base : table->worded[part].base, sums));
    }
    sums->count = room;
    if (!sound)
        sums->filled = -1;
    return sound;
}

/* The `k` best of the slots that have a score and that the mask (NULL: all) admits, in the order of their rows. How many,
   and how many there are in all; -1 where there is no memory for it. */
static Py_ssize_t best_by_words(const Table *table, const uint8_t *mask, Py_ssize_t k, int64_t *out, Py_ssize_t *total)
{
    const Sums *sums = &table->desk.sums;
    Py_ssize_t found = 0;
    k = k < sums->filled ? k : sums->filled;
    Entry *heap = malloc((size_t)(k + 1) * sizeof *heap);
    if (heap == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < sums->filled; i++) {
        int64_t slot = sums->slots[i];
        if (mask != NULL && !mask[slot])
            continue;
        ++*total;
        float value = sums->scores[slot];
        if (found < k || (k > 0 && value >= heap[0].value))
            offer(heap, &found, k, (Entry){slot, 0, value}, table->rows);
    }
    for (Py_ssize_t i = 0; i < found; i++)
        heap[i].row = table->rows[heap[i].slot];
    by_row(heap, found);
    for (Py_ssize_t i = 0; i < found; i++)
        out[i] = heap[i].slot;
    free(heap);
    return found;
}

/* What a search by vectors takes from (query, worth, given, (sketched, first, admitted, masked, second, third, k)). The
   query is its steps, eight bytes each, and then its coordinates, four bytes each. */
static int near_of(Buffers *buffers, const Table *table, PyObject *given, const uint8_t *mask, Search *search)
{
    PyObject *query, *some;
    int sketched;
    *search = table->near;
    if (!is_tuple(given, "near") ||
        !PyArg_ParseTuple(given, "OdO(pddpnnn)", &query, &search->worth, &some, &sketched, &search->first,
                          &search->admitted, &search->masked, &search->second, &search->third, &search->k))
        return 0;
    Py_buffer *bytes = array(buffers, query, "query", 1, 1, 0);
    Py_buffer *slots = bytes && some != Py_None ? array(buffers, some, "given", 1, 8, 0) : NULL;
    if (bytes == NULL || (slots == NULL && some != Py_None) ||
        !told(search->dim > 0 && search->count == table->count, "query: the table has no vectors") ||
        !told(bytes->shape[0] == 12 * search->dim && (uintptr_t)bytes->buf % 8 == 0, "query: of another length"))
        return 0;
    search->steps = bytes->buf;
    search->single = (const float *)((const char *)bytes->buf + 8 * search->dim);
    search->mask = mask;
    search->given = slots ? slots->buf : NULL;
    search->given_count = slots ? slots->shape[0] : 0;
    if (!told(!sketched || search->axes != NULL, "near: no frame was given") ||
        !told(!search->masked || mask != NULL, "near: no mask was given") ||
        !told(search->second > 0 && search->third > 0 && search->k >= 0 && search->admitted > 0 &&
                  search->given_count <= search->count,
              "limits: too few or too many"))
        return 0;
    if (!sketched) {
        search->axes = NULL;
        search->axes_count = search->sample.count = 0;
    }
    return ascending(search->given, search->given_count, search->count);
}

/* One search at a time: another thread may come while this one has let go of Python's lock. */
static int entered(Table *table)
{
    if (table->busy)
        PyErr_SetString(PyExc_RuntimeError, "the table is being searched");
    else
        table->busy = 1;
    return !PyErr_Occurred();
}

const char pool_doc[] =
    "pool(keys, factors, tail, mask, k, near, slots, words, cosines, /)\n--\n\n"
    "Put the `k` best slots by words that a mask (None: all) admits, and the nearest by vectors, into `slots` in the order\n"
    "of their rows; the BM25 score and the cosine of each (nan where there is none) into the other two. Returns how many\n"
    "there are, and how many admitted slots hold a word.\n\n"
    "Keys are a list of distinct numbers, factors of their worth a list of as many or None. The tail is None or\n"
    "(how many postings of each key, docs, impacts). `near` is None or (query, worth, slots to begin with or None,\n"
    "limits).";

PyObject *table_pool(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Table *table = (Table *)self;
    if (!is_count("pool", count, 9) || !entered(table))
        return NULL;
    Buffers buffers;
    Asked asked;
    Search search;
    int64_t *chosen = NULL;
    PyObject *answer = NULL;
    int sound = 1, vectors = given[5] != Py_None;
    Py_ssize_t found = -1, total = 0, near = 0;
    buffers.count = 0;
    if (!taken_up(table, given[0], given[1], &asked))
        goto end;
    Py_buffer *mask = given[3] == Py_None ? NULL : array(&buffers, given[3], "mask", 1, 1, 0);
    Py_ssize_t k = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(given[4]);
    Py_buffer *slots = PyErr_Occurred() ? NULL : array(&buffers, given[6], "slots", 1, 8, 1);
    Py_buffer *words = slots ? array(&buffers, given[7], "words", 1, 4, 1) : NULL;
    Py_buffer *cosines = words ? array(&buffers, given[8], "cosines", 1, 4, 1) : NULL;
    if (cosines == NULL || (mask && !long_enough(mask, "mask", table->count)))
        goto end;
    k = k < 0 ? 0 : k > table->count ? table->count : k;
    if (vectors) {
        if (!near_of(&buffers, table, given[5], mask ? mask->buf : NULL, &search))
            goto end;
        near = search.k < table->count ? search.k : table->count;
    }
    if (!long_enough(slots, "slots", k + near) || !long_enough(words, "words", k + near) ||
        !long_enough(cosines, "cosines", k + near) || !asked_of(table, given[0], given[1], given[2], &asked))
        goto end;
    chosen = malloc((size_t)(k + 1) * sizeof *chosen);
    if (chosen == NULL || !scores_fit(&table->desk, table->count) ||
        (vectors && !vectors_fit(&table->desk, &search))) {
        PyErr_NoMemory();
        goto end;
    }
    int64_t *slot = slots->buf;
    float *word = words->buf, *cosine = cosines->buf;
    Py_BEGIN_ALLOW_THREADS
    sound = scored(table, &asked);
    found = sound ? best_by_words(table, mask ? mask->buf : NULL, k, vectors ? chosen : slot, &total) : -1;
    if (found >= 0 && vectors) {
        search.slots = table->desk.slots;
        search.values = table->desk.values;
        search.room = table->desk.room;
        search.chosen = chosen;
        search.chosen_count = found;
        found = pooled(&search, slot, cosine);
    } else
        for (Py_ssize_t i = 0; i < found; i++)
            cosine[i] = (float)Py_NAN;
    for (Py_ssize_t i = 0; i < found; i++)
        word[i] = table->desk.sums.scores[slot[i]];
    Py_END_ALLOW_THREADS
    if (!sound)
        PyErr_SetString(PyExc_IndexError, OUTSIDE);
    else if (found < 0)
        PyErr_NoMemory();
    else
        answer = Py_BuildValue("(nn)", found, total);
end:
    free(chosen);
    put_down(&asked);
    release(&buffers);
    table->busy = 0;
    return answer;
}
