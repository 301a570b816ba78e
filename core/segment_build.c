/* Two loops of building a segment: vectors to fine codes (`encode` in `src/skep/index/quantisation.py` is the oracle),
   and the terms of rows to postings (`make_postings` in `bm25.py`). */

#include "core.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

#if defined(_MSC_VER) && !defined(__clang__)
#define restrict __restrict
#endif

/* The nearest whole number, the even one of two; of numbers below 2 to the 22nd. */
static inline float nearest(float x)
{
#if FLT_EVAL_METHOD == 0
    return (x + 12582912.0f) - 12582912.0f;
#else
    return rintf(x);
#endif
}

/* How rows are turned, and the fine codes of a turned row; what every such loop is given. */
typedef struct {
    const float *signs;
    Py_ssize_t dim, size; /* of a row, and of the largest power of two in it */
    float unit, back, shrink;
} Turn;

typedef struct {
    void (*turn_row)(float *row, const Turn *turn);
    float (*code_row)(float *row, Py_ssize_t dim, int8_t *high, uint8_t *low);
} Coding;

#define TARGET
#define NAMED(name) plain_##name
#include "encode_loops.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET __attribute__((target("avx2")))
#define NAMED(name) avx2_##name
#include "encode_loops.h"
#endif

static const Coding *coding = &plain_coding;

void build_start(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        coding = &avx2_coding;
#endif
}

PyDoc_STRVAR(encode_doc, "encode(rows, sound, signs, unit, back, shrink, high, low, scale, /)\n--\n\n"
                         "Turn rows of length 1 and put their fine codes into three arrays; rows that are not sound\n"
                         "have none. The rows are used up.");

static PyObject *encode(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "encode takes 9 arguments");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    PyObject *answer = NULL;
    Py_buffer *rows = array(&buffers, given[0], "rows", 2, 4, 1);
    Py_buffer *sound = rows ? array(&buffers, given[1], "sound", 1, 1, 0) : NULL;
    Py_buffer *signs = sound ? array(&buffers, given[2], "signs", 1, 4, 0) : NULL;
    Py_buffer *high = signs ? array(&buffers, given[6], "high", 2, 1, 1) : NULL;
    Py_buffer *low = high ? array(&buffers, given[7], "low", 2, 1, 1) : NULL;
    Py_buffer *scale = low ? array(&buffers, given[8], "scale", 1, 4, 1) : NULL;
    if (scale == NULL)
        goto end;
    double unit = PyFloat_AsDouble(given[3]), back = PyFloat_AsDouble(given[4]), shrink = PyFloat_AsDouble(given[5]);
    if (PyErr_Occurred())
        goto end;
    Py_ssize_t many = rows->shape[0], dim = rows->shape[1], size = signs->shape[0];
    if (size < 1 || size > dim || 2 * size <= dim || (size & (size - 1))) {
        PyErr_SetString(PyExc_ValueError, "signs: not the largest power of two that a row has room for");
        goto end;
    }
    if (high->shape[1] != dim || low->shape[1] != (dim + 1) / 2) {
        PyErr_SetString(PyExc_ValueError, "high, low: not as wide as the codes of these rows");
        goto end;
    }
    if (!long_enough(sound, "sound", many) || !long_enough(high, "high", many) || !long_enough(low, "low", many) ||
        !long_enough(scale, "scale", many))
        goto end;
    Turn turn = {signs->buf, dim, size, (float)unit, (float)back, (float)shrink};
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < many; i++) {
        float *row = (float *)((char *)rows->buf + i * rows->strides[0]);
        int8_t *coarse = (int8_t *)high->buf + i * high->strides[0];
        uint8_t *fine = (uint8_t *)low->buf + i * low->strides[0];
        memset(fine, 0, (size_t)low->shape[1]);
        if (((const uint8_t *)sound->buf)[i]) {
            coding->turn_row(row, &turn);
            ((float *)scale->buf)[i] = coding->code_row(row, dim, coarse, fine);
        } else {
            memset(coarse, 0, (size_t)dim);
            for (Py_ssize_t d = 0; d < dim; d++) /* zero, in the middle of its step */
                fine[d % low->shape[1]] |= (uint8_t)(8 << (d < low->shape[1] ? 0 : 4));
            ((float *)scale->buf)[i] = 0;
        }
    }
    Py_END_ALLOW_THREADS
    answer = Py_None;
    Py_INCREF(answer);
end:
    release(&buffers);
    return answer;
}

static int by_number(const void *one, const void *two)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)two;
    return (a > b) - (a < b);
}

static void sort_few(uint32_t *terms, Py_ssize_t count)
{
    if (count > 48) {
        qsort(terms, (size_t)count, sizeof *terms, by_number);
        return;
    }
    for (Py_ssize_t i = 1; i < count; i++) {
        uint32_t term = terms[i];
        Py_ssize_t at = i;
        for (; at > 0 && terms[at - 1] > term; at--)
            terms[at] = terms[at - 1];
        terms[at] = term;
    }
}

PyDoc_STRVAR(group_doc,
             "group(terms, ends, kept, doc_terms, doc_ends, docs, counts, found, /)\n--\n\n"
             "The distinct terms of the kept texts, text by text and term by term. `ends` says where in `terms` each\n"
             "text ends; `found` then holds how many texts have each term. Says how many pairs there are.");

static PyObject *group(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "group takes 8 arguments");
        return NULL;
    }
    static const char *names[] = {"terms", "ends", "kept", "doc_terms", "doc_ends", "docs", "counts", "found"};
    static const Py_ssize_t sizes[] = {4, 8, 8, 4, 8, 4, 4, 8};
    Buffers buffers = {.count = 0};
    Py_buffer *views[8];
    PyObject *answer = NULL;
    uint32_t *repeated = NULL;
    int64_t *next = NULL;
    for (int i = 0; i < 8; i++)
        if ((views[i] = array(&buffers, given[i], names[i], 1, sizes[i], i >= 3)) == NULL)
            goto end;
    const uint32_t *terms = views[0]->buf;
    const int64_t *ends = views[1]->buf, *kept = views[2]->buf;
    uint32_t *doc_terms = views[3]->buf, *docs = views[5]->buf, *counts = views[6]->buf;
    int64_t *doc_ends = views[4]->buf, *found = views[7]->buf;
    Py_ssize_t occurrences = views[0]->shape[0], texts = views[1]->shape[0], rows = views[2]->shape[0];
    Py_ssize_t distinct = views[7]->shape[0], total = 0;
    for (Py_ssize_t i = 0; i < texts; i++)
        if (ends[i] < (i ? ends[i - 1] : 0) || ends[i] > occurrences) {
            PyErr_SetString(PyExc_ValueError, "ends: not in order, or beyond the terms");
            goto end;
        }
    for (Py_ssize_t i = 0; i < rows; i++) {
        if (kept[i] < 0 || kept[i] >= texts) {
            PyErr_Format(PyExc_IndexError, "kept: no text %zd among %zd", (Py_ssize_t)kept[i], texts);
            goto end;
        }
        total += (Py_ssize_t)(ends[kept[i]] - (kept[i] ? ends[kept[i] - 1] : 0));
    }
    for (Py_ssize_t i = 0; i < occurrences; i++)
        if (terms[i] >= distinct) {
            PyErr_Format(PyExc_IndexError, "terms: no term %zd among %zd", (Py_ssize_t)terms[i], distinct);
            goto end;
        }
    if (!long_enough(views[3], "doc_terms", total) || !long_enough(views[4], "doc_ends", rows) ||
        !long_enough(views[5], "docs", total) || !long_enough(views[6], "counts", total))
        goto end;
    repeated = malloc((size_t)(total + 1) * sizeof *repeated);
    next = malloc((size_t)(distinct + 1) * sizeof *next);
    if (repeated == NULL || next == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Py_ssize_t pairs = 0;
    Py_BEGIN_ALLOW_THREADS
    memset(found, 0, (size_t)distinct * sizeof *found);
    for (Py_ssize_t row = 0; row < rows; row++) {
        int64_t start = kept[row] ? ends[kept[row] - 1] : 0;
        Py_ssize_t here = (Py_ssize_t)(ends[kept[row]] - start);
        uint32_t *mine = doc_terms + pairs; /* what is written never passes what is still to be read */
        memcpy(mine, terms + start, (size_t)here * sizeof *mine);
        sort_few(mine, here);
        for (Py_ssize_t i = 0, end; i < here; i = end) {
            uint32_t term = mine[i];
            for (end = i + 1; end < here && mine[end] == term; end++)
                ;
            repeated[pairs] = (uint32_t)(end - i);
            doc_terms[pairs++] = term;
            found[term]++;
        }
        doc_ends[row] = pairs;
    }
    next[0] = 0;
    for (Py_ssize_t term = 0; term < distinct; term++)
        next[term + 1] = next[term] + found[term];
    for (Py_ssize_t row = 0, pair = 0; row < rows; row++)
        for (; pair < doc_ends[row]; pair++) {
            int64_t at = next[doc_terms[pair]]++;
            docs[at] = (uint32_t)row;
            counts[at] = repeated[pair];
        }
    Py_END_ALLOW_THREADS
    answer = PyLong_FromSsize_t(pairs);
end:
    free(repeated);
    free(next);
    release(&buffers);
    return answer;
}

PyMethodDef build_methods[] = {
    METHOD(encode),
    METHOD(group),
    {NULL, NULL, 0, NULL},
};
