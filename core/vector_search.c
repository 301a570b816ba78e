/* A search by vectors, from the query to the candidates: the rounds of `scan.c`, then exact cosines. The oracle is
   `Scanner` in `src/skep/index/vector_search.py`. */

#include <math.h>
#include <stdlib.h>

#include "vector_search.h"

static void probe_of(const Search *search, float *room, Probe *probe)
{
    probe->bits = search->bits;
    double size = probe_all(search->axes, search->axes_stride, search->axes_count, search->dim, search->mean,
                            search->single, search->step, room, search->bits, probe->sign[0], MAX_WORDS);
    double gain = 2 * search->gain, bias = gain * size * search->mean_size;
    probe->bias_worth = (float)(1 / (bias > TINY ? bias : TINY));
    for (Py_ssize_t bit = 0; bit < search->bits; bit++)
        probe->worth[bit] = (float)(gain * search->step * size * (double)(1 << (search->bits - 1 - bit)));
}

/* What the wanted share of the admitted rows reaches in the first round, found on the sample. */
static float bar_of(const Search *search, const Probe *probe)
{
    float *values = search->values;
    Py_ssize_t left = 0;
    rank_all(&search->sample, probe, values);
    if (search->masked) {
        for (Py_ssize_t i = 0; i < search->sample.count; i++) {
            values[left] = values[i];
            left += search->mask[search->sampled[i]] != 0;
        }
    } else
        left = search->sample.count;
    double above = rint((double)left * search->first / search->admitted);
    Py_ssize_t wanted = above < 1 ? 1 : above < (double)left ? (Py_ssize_t)above : left;
    return left > 0 ? reached(values, left, wanted, (int32_t *)(search->room + left), search->room) : -INFINITY;
}

/* The stretch of ascending slots, from `from` on, that lies in a part. */
static Py_ssize_t until(const int64_t *slots, Py_ssize_t from, Py_ssize_t count, const Part *part)
{
    int64_t end = part->base + part->count;
    if (count > from && slots[count - 1] < end)
        return count;
    while (count > from) {
        Py_ssize_t middle = from + (count - from) / 2;
        if (slots[middle] < end)
            from = middle + 1;
        else
            count = middle;
    }
    return from;
}

/* The first two rounds, and the tail, which skips them. */
static Py_ssize_t narrowed(const Search *search)
{
    Probe probe;
    Py_ssize_t found = 0;
    probe_of(search, search->values, &probe);
    if (search->given == NULL) {
        float bar = bar_of(search, &probe);
        for (Py_ssize_t i = 0; i < search->number; i++) {
            Part *part = &search->parts[i];
            part->rows.mask = search->masked ? search->mask + part->base : NULL;
            if (part->sketched)
                found += narrow_all(&part->rows, &probe, bar, part->base, search->slots + found, search->values + found);
        }
    } else {
        memcpy(search->slots, search->given, (size_t)search->given_count * sizeof *search->slots);
        for (Py_ssize_t i = 0; i < search->number; i++) {
            const Part *part = &search->parts[i];
            Py_ssize_t end = until(search->slots, found, search->given_count, part);
            if (part->sketched)
                weigh_all(&part->rows, &probe, search->slots + found, end - found, part->base, search->values + found);
            else
                for (Py_ssize_t at = found; at < end; at++)
                    search->values[at] = -INFINITY;
            found = end;
        }
    }
    return top_all(search->values, found, search->second, search->slots, search->slots, search->room);
}

static Py_ssize_t with_tail(const Search *search, Py_ssize_t found)
{
    for (Py_ssize_t i = 0; i < search->number; i++) {
        const Part *part = &search->parts[i];
        if (part->base >= search->tail && part->coded)
            for (Py_ssize_t at = 0; at < part->count; at++)
                if ((search->mask == NULL || search->mask[part->base + at]) && part->codes.scale[at] > 0)
                    search->slots[found++] = part->base + at;
    }
    return found;
}

/* The third round: the coarse half of the fine codes. Rows without a vector go: they would come before those that point
   away from the query. */
static Py_ssize_t coarsely(const Search *search, Py_ssize_t found, int16_t *steps)
{
    Py_ssize_t from = 0;
    float worth = rounded(search->single, search->dim, steps);
    for (Py_ssize_t i = 0; i < search->number; i++) {
        const Part *part = &search->parts[i];
        const Codes *codes = &part->codes;
        Py_ssize_t end = until(search->slots, from, found, part);
        if (part->coded)
            multiply_all(codes->high, codes->high_stride, codes->dim, codes->scale, search->slots + from, end - from,
                         part->base, steps, worth, search->values + from);
        else
            for (Py_ssize_t at = from; at < end; at++)
                search->values[at] = -INFINITY;
        from = end;
    }
    Py_ssize_t left = 0;
    for (Py_ssize_t at = 0; at < found; at++) {
        search->slots[left] = search->slots[at];
        search->values[left] = search->values[at];
        left += search->values[at] > -INFINITY;
    }
    return top_all(search->values, left, search->third, search->slots, search->slots, search->room);
}

static int by_number(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Two ascending lists as one, each number once. */
static Py_ssize_t together(const int64_t *left, Py_ssize_t lefts, const int64_t *right, Py_ssize_t rights, int64_t *out)
{
    Py_ssize_t i = 0, j = 0, found = 0;
    while (i < lefts || j < rights) {
        int64_t next = j == rights || (i < lefts && left[i] <= right[j]) ? left[i++] : right[j++];
        if (found == 0 || out[found - 1] != next)
            out[found++] = next;
    }
    return found;
}

static void exactly(const Search *search, const int64_t *field, Py_ssize_t count, int16_t *steps, float *cosines)
{
    Py_ssize_t from = 0;
    for (Py_ssize_t i = 0; i < search->number; i++) {
        const Part *part = &search->parts[i];
        Py_ssize_t end = until(field, from, count, part);
        Codes codes = part->codes;
        codes.places = field + from;
        codes.count = end - from;
        codes.base = part->base;
        if (part->coded)
            cosines_all(&codes, search->steps, search->worth, steps, cosines + from);
        else
            for (Py_ssize_t at = from; at < end; at++)
                cosines[at] = NAN;
        from = end;
    }
}

/* Every slot that the mask, if there is one, admits. */
static Py_ssize_t all_of(const Search *search)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t slot = 0; slot < search->count; slot++) {
        search->slots[found] = slot;
        found += search->mask == NULL || search->mask[slot];
    }
    return found;
}

Py_ssize_t pooled(const Search *search, int64_t *out, float *cosines)
{
    Py_ssize_t found = search->given_count, kept = 0, pooled = -1;
    int64_t *chosen = NULL, *field = NULL;
    Entry *heap = NULL;
    float *exact = NULL;
    uint8_t *wanted = NULL;
    int16_t *steps = calloc((size_t)search->dim + STEPS, sizeof *steps);
    if (steps == NULL)
        goto end;
    if (search->axes != NULL)
        found = with_tail(search, narrowed(search));
    else if (search->given != NULL)
        memcpy(search->slots, search->given, (size_t)found * sizeof *search->slots);
    else
        found = all_of(search);
    if (found > search->third)
        found = coarsely(search, found, steps);
    Py_ssize_t all = found + search->chosen_count, k = search->k < all ? search->k : all;
    chosen = malloc((size_t)(search->chosen_count + 1) * sizeof *chosen);
    field = malloc((size_t)(all + 1) * sizeof *field);
    exact = malloc((size_t)(all + 1) * sizeof *exact);
    wanted = calloc((size_t)all + 1, sizeof *wanted);
    heap = malloc((size_t)(k + search->chosen_count + 1) * sizeof *heap);
    if (chosen == NULL || field == NULL || exact == NULL || wanted == NULL || heap == NULL)
        goto end;
    memcpy(chosen, search->chosen, (size_t)search->chosen_count * sizeof *chosen);
    qsort(chosen, (size_t)search->chosen_count, sizeof *chosen, by_number);
    all = together(search->slots, found, chosen, search->chosen_count, field);
    for (Py_ssize_t i = 0; i < all; i++) /* wanted once the cosines are there */
        fetch(search->row + field[i]);
    exactly(search, field, all, steps, exact);
    for (Py_ssize_t i = 0; i < all && k > 0; i++)
        if (!isnan(exact[i])) /* an entry names its place in the field */
            offer(heap, &kept, k, (Entry){i, search->row[field[i]], exact[i]}, NULL);
    for (Py_ssize_t i = 0; i < kept; i++)
        wanted[heap[i].slot] = 1;
    for (Py_ssize_t i = 0, at = 0; i < search->chosen_count; i++) {
        while (field[at] != chosen[i])
            at++;
        wanted[at] = 1;
    }
    int ordered = 1;
    pooled = 0;
    for (Py_ssize_t i = 0; i < all; i++)
        if (wanted[i]) {
            heap[pooled] = (Entry){field[i], search->row[field[i]], exact[i]};
            ordered &= pooled == 0 || heap[pooled - 1].row < heap[pooled].row;
            pooled++;
        }
    if (!ordered)
        by_row(heap, pooled);
    for (Py_ssize_t i = 0; i < pooled; i++) {
        out[i] = heap[i].slot;
        cosines[i] = heap[i].value;
    }
end:
    free(steps);
    free(chosen);
    free(field);
    free(exact);
    free(wanted);
    free(heap);
    return pooled;
}

int is_tuple(PyObject *given, const char *name)
{
    if (!PyTuple_Check(given))
        PyErr_Format(PyExc_TypeError, "%s: not a tuple", name);
    return PyTuple_Check(given);
}

/* One part from (base, count, planes, spread, bias, high, low, scale), where planes and high may be None. */
static int part_of(PyObject *given, const Search *search, Part *part)
{
    PyObject *item[8];
    if (!is_tuple(given, "parts"))
        return 0;
    if (PyTuple_Size(given) != 8) {
        PyErr_SetString(PyExc_ValueError, "parts: not tuples of eight");
        return 0;
    }
    for (int i = 0; i < 8; i++)
        item[i] = PyTuple_GetItem(given, i);
    part->base = PyLong_AsLongLong(item[0]);
    part->count = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(item[1]);
    if (PyErr_Occurred())
        return 0;
    part->sketched = item[2] != Py_None;
    part->coded = item[5] != Py_None;
    if (part->sketched && !rows_of(&part->buffers, item[2], item[3], item[4], Py_None, &part->rows))
        return 0;
    if (part->coded) {
        Py_buffer *high = array(&part->buffers, item[5], "high", 2, 1, 0);
        Py_buffer *low = high ? array(&part->buffers, item[6], "low", 2, 1, 0) : NULL;
        Py_buffer *scale = low ? array(&part->buffers, item[7], "scale", 1, 4, 0) : NULL;
        if (scale == NULL || !long_enough(high, "high", part->count) || !long_enough(low, "low", part->count) ||
            !long_enough(scale, "scale", part->count))
            return 0;
        part->codes = (Codes){.high = high->buf, .low = low->buf, .scale = scale->buf, .high_stride = high->strides[0],
                              .low_stride = low->strides[0], .dim = search->dim};
        if (high->shape[1] != search->dim || low->shape[1] != search->dim - search->dim / 2) {
            PyErr_SetString(PyExc_ValueError, "parts: codes of another length than the query");
            return 0;
        }
    }
    if (part->sketched && (part->rows.count != part->count ||
                           (search->axes != NULL && part->rows.words * 64 != search->axes_count))) {
        PyErr_SetString(PyExc_ValueError, "parts: sketches of other rows or axes");
        return 0;
    }
    return 1;
}

int parts_of(PyObject *given, Search *search)
{
    if (!is_tuple(given, "parts"))
        return 0;
    Py_ssize_t number = PyTuple_Size(given);
    if ((search->parts = calloc((size_t)number + 1, sizeof *search->parts)) == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (; search->number < number; search->number++) {
        Part *part = &search->parts[search->number];
        if (!part_of(PyTuple_GetItem(given, search->number), search, part)) {
            search->number++; /* what it holds is given back with the others */
            return 0;
        }
        if (part->base != search->count || part->count < 0) {
            PyErr_SetString(PyExc_ValueError, "parts: not one after the other");
            return 0;
        }
        search->count += part->count;
    }
    return 1;
}

int frame_of(Buffers *buffers, PyObject *given, Search *search)
{
    PyObject *planes, *spread, *bias, *slots, *axes, *mean;
    Py_ssize_t sample;
    if (!is_tuple(given, "frame") ||
        !PyArg_ParseTuple(given, "OOdddnOOOO", &axes, &mean, &search->gain, &search->step, &search->mean_size,
                          &search->bits, &planes, &spread, &bias, &slots))
        return 0;
    Py_buffer *axis = array(buffers, axes, "axes", 2, 4, 0);
    Py_buffer *means = axis ? array(buffers, mean, "mean", 1, 4, 0) : NULL;
    Py_buffer *sampled = means ? array(buffers, slots, "sample", 1, 8, 0) : NULL;
    if (sampled == NULL || !long_enough(means, "mean", search->dim))
        return 0;
    sample = sampled->shape[0];
    if (axis->shape[1] != search->dim || axis->shape[0] % 64 != 0 || axis->shape[0] < 64 ||
        axis->shape[0] > MAX_WORDS * 64 || search->bits < 1 || search->bits > MAX_BITS) {
        PyErr_SetString(PyExc_ValueError, "frame: axes of another length than the query, or more than a sketch has");
        return 0;
    }
    search->axes = axis->buf;
    search->axes_stride = axis->strides[0];
    search->axes_count = axis->shape[0];
    search->mean = means->buf;
    search->sampled = sampled->buf;
    if (sample > 0 && !rows_of(buffers, planes, spread, bias, Py_None, &search->sample))
        return 0;
    if (search->sample.count != sample || (sample > 0 && search->sample.words * 64 != search->axes_count)) {
        PyErr_SetString(PyExc_ValueError, "frame: a sample of other rows or axes");
        return 0;
    }
    return 1;
}

int ascending(const int64_t *slots, Py_ssize_t count, Py_ssize_t room)
{
    int sound = 1;
    for (Py_ssize_t i = 0; i < count; i++)
        sound &= slots[i] < room && slots[i] > (i == 0 ? -1 : slots[i - 1]);
    if (!sound)
        PyErr_SetString(PyExc_IndexError, "given: slots that do not ascend, or lie outside");
    return sound;
}
