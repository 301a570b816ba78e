/* What late interaction makes of the best matches of each piece of a query (rows) in each block of the texts (columns).
   `retrieval/late.py` does the same with numpy, to the last bit: products are added row after row. */

#include <stdlib.h>

#include "native.h"

/* The matches, and the first block of each text. */
typedef struct {
    const char *best;
    Py_ssize_t stride, rows, blocks, texts;
    const int64_t *first;
    const double *weights;
} Matches;

static inline const float *row_of(const Matches *found, Py_ssize_t row)
{
    return (const float *)(found->best + row * found->stride);
}

static inline Py_ssize_t end_of(const Matches *found, Py_ssize_t text)
{
    return (Py_ssize_t)(text + 1 < found->texts ? found->first[text + 1] : found->blocks);
}

static float best_of(const Matches *found, const float *row, Py_ssize_t text)
{
    Py_ssize_t at = (Py_ssize_t)found->first[text], end = end_of(found, text);
    float best = row[at];
    while (++at < end)
        best = row[at] > best ? row[at] : best;
    return best;
}

/* The arguments that both functions begin with. */
static int read_matches(Buffers *buffers, PyObject *const *given, Matches *found)
{
    Py_buffer *best = array(buffers, given[0], "best", 2, 4, 0);
    Py_buffer *first = best ? array(buffers, given[1], "first", 1, 8, 0) : NULL;
    Py_buffer *weights = first ? array(buffers, given[2], "weights", 1, 8, 0) : NULL;
    if (weights == NULL || !long_enough(weights, "weights", best->shape[0]))
        return 0;
    *found = (Matches){best->buf, best->strides[0], best->shape[0], best->shape[1], first->shape[0], first->buf,
                       weights->buf};
    int right = found->texts == 0 || found->first[0] >= 0;
    for (Py_ssize_t text = 0; right && text < found->texts; text++)
        right = found->first[text] < end_of(found, text);
    return told(right, "first: a text without a block");
}

PyDoc_STRVAR(whole_texts_doc, "whole_texts(best, first, weights, out, /)\n--\n\n"
                              "The sum, for each text, of the best match of every row in it, times the weight of the row.");

static PyObject *whole_texts(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("whole_texts", count, 4))
        return NULL;
    Buffers buffers = {.count = 0};
    Matches found;
    int sound = read_matches(&buffers, given, &found);
    Py_buffer *out = sound ? array(&buffers, given[3], "out", 1, 8, 1) : NULL;
    sound = out != NULL && long_enough(out, "out", found.texts);
    if (sound) {
        double *sums = out->buf;
        memset(sums, 0, (size_t)found.texts * sizeof *sums);
        for (Py_ssize_t row = 0; row < found.rows; row++)
            for (Py_ssize_t text = 0; text < found.texts; text++)
                sums[text] += found.weights[row] * best_of(&found, row_of(&found, row), text);
    }
    return finished(&buffers, sound);
}

/* How many texts hold the very piece of a row. */
static Py_ssize_t held(const Matches *found, const float *row, double same)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t text = 0; text < found->texts; text++)
        count += best_of(found, row, text) > (float)same;
    return count;
}

/* A row times its weight onto the sums of the blocks: each block and the next one of the text, whichever is better. */
static void add_pairs(const Matches *found, const float *row, double weight, double *sums)
{
    for (Py_ssize_t text = 0; text < found->texts; text++) {
        Py_ssize_t at = (Py_ssize_t)found->first[text], last = end_of(found, text) - 1;
        for (; at < last; at++)
            sums[at] += weight * (row[at + 1] > row[at] ? row[at + 1] : row[at]);
        sums[last] += weight * row[last];
    }
}

PyDoc_STRVAR(close_together_doc,
             "close_together(best, first, weights, rare, same, out, /)\n--\n\n"
             "For each text the highest sum, over the rows, of the better match in a block or the next one, times what the\n"
             "row weighs; divided by all weights. A row weighs more the fewer texts hold a match above `same`: so many\n"
             "times more as `rare` says for their number.");

static PyObject *close_together(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("close_together", count, 6))
        return NULL;
    Buffers buffers = {.count = 0};
    Matches found;
    double *sums = NULL, total = 0;
    int sound = read_matches(&buffers, given, &found);
    Py_buffer *rare = sound ? array(&buffers, given[3], "rare", 1, 8, 0) : NULL;
    double same = rare ? PyFloat_AsDouble(given[4]) : 0;
    Py_buffer *out = rare && !PyErr_Occurred() ? array(&buffers, given[5], "out", 1, 8, 1) : NULL;
    sound = out != NULL && long_enough(rare, "rare", found.texts + 1) && long_enough(out, "out", found.texts);
    if (sound && (sums = calloc((size_t)found.blocks + 1, sizeof *sums)) == NULL) {
        PyErr_NoMemory();
        sound = 0;
    }
    if (sound) {
        double *best = out->buf;
        for (Py_ssize_t i = 0; i < found.rows; i++) {
            const float *row = row_of(&found, i);
            double weight = found.weights[i] * ((const double *)rare->buf)[held(&found, row, same)];
            total += weight;
            add_pairs(&found, row, weight, sums);
        }
        for (Py_ssize_t text = 0; text < found.texts; text++) {
            Py_ssize_t at = (Py_ssize_t)found.first[text], end = end_of(&found, text);
            for (best[text] = sums[at]; ++at < end;)
                best[text] = sums[at] > best[text] ? sums[at] : best[text];
            best[text] /= total;
        }
    }
    free(sums);
    return finished(&buffers, sound);
}

PyMethodDef late_methods[] = {
    METHOD(whole_texts),
    METHOD(close_together),
    {NULL, NULL, 0, NULL},
};
