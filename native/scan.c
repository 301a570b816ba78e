/* The loops of a vector search over sketches and coarse codes. `storage/segments/scan.py` says what they mean; `rank`,
   `narrow` and `weigh` give what its numpy code gives to the last bit, `coarse` up to the rounding of the query. */

#include <math.h>
#include <stdlib.h>

#include "native.h"

#define MAX_WORDS 4 /* words of a sketch */
#define MAX_BITS 3  /* bits per axis of a query */
#define BLOCK 1024  /* rows per step; what a step keeps fits the nearest cache */
#define ROOM (BLOCK + 8)
#define AHEAD 12 /* rows that are fetched before they are multiplied */
#define STEPS 64 /* coordinates of a query are padded to a multiple of so many */

#if defined(__GNUC__)
#define ones(word) ((uint64_t)__builtin_popcountll(word))
#else
static uint64_t ones(uint64_t word)
{
    word -= (word >> 1) & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
    return (((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u) >> 56;
}
#endif

/* Some rows of a segment: one plane of signs per word, the length of each centred row, its share of the mean. */
typedef struct {
    const uint64_t *plane[MAX_WORDS];
    const float *spread, *bias;
    const uint8_t *mask; /* NULL: every row may be returned */
    Py_ssize_t words, count;
} Rows;

/* A query: per bit (the sign first) and word its code, and what an agreeing sign is worth. */
typedef struct {
    uint64_t sign[MAX_BITS][MAX_WORDS];
    float worth[MAX_BITS];
    float bias_worth;
    Py_ssize_t bits;
} Probe;

static inline float agreement(uint64_t differing, Py_ssize_t words)
{
    return (float)(int8_t)(uint8_t)(words * 32 - 1 - (Py_ssize_t)differing);
}

typedef struct {
    /* The first round: how many signs of the rows in [start, start + size) agree, and how the rows rank. */
    void (*rank)(const Rows *, const Probe *, Py_ssize_t start, Py_ssize_t size, float *agreed, float *ranked);
    /* Those that reach the bar; both arrays have ROOM. */
    Py_ssize_t (*pass)(const Rows *, const Probe *, float bar, Py_ssize_t start, Py_ssize_t size, int32_t *passed,
                       float *agreed);
    /* The second round: cosines, up to a constant, of some rows; of those that passed, signs are counted already. */
    void (*weigh)(const Rows *, const Probe *, Py_ssize_t start, Py_ssize_t found, const int32_t *passed,
                  const float *agreed, float *estimates);
    /* Rows of bytes times a query of whole numbers. */
    void (*multiply)(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const int64_t *places, int64_t base,
                     Py_ssize_t count, const int16_t *query, int32_t *out);
} Loops;

#define TARGET
#define NAMED(name) plain_##name
#include "loops.h"

#ifdef WIDE
#define TARGET FOR_AVX2
#define NAMED(name) avx2_##name
#include "loops.h"
#include "avx512.h"
static const Loops *const generations[] = {&plain_loops, &avx2_loops, &avx512_loops};
#else
static const Loops *const generations[] = {&plain_loops};
#endif

static int probe_of(Buffers *buffers, PyObject *codes, PyObject *worths, PyObject *bias_worth, Py_ssize_t words,
                    Probe *probe)
{
    Py_buffer *signs = array(buffers, codes, "signs", 2, 8, 0);
    Py_buffer *worth = signs ? array(buffers, worths, "worths", 1, 4, 0) : NULL;
    double bias = worth ? PyFloat_AsDouble(bias_worth) : -1;
    if (worth == NULL || (bias == -1 && PyErr_Occurred()))
        return 0;
    probe->bits = signs->shape[0];
    if (probe->bits < 1 || probe->bits > MAX_BITS || signs->shape[1] != words) {
        PyErr_SetString(PyExc_ValueError, "signs: more bits than are used, or other words than the planes have");
        return 0;
    }
    if (!long_enough(worth, "worths", probe->bits))
        return 0;
    for (Py_ssize_t bit = 0; bit < probe->bits; bit++) {
        memcpy(probe->sign[bit], (char *)signs->buf + bit * signs->strides[0], (size_t)signs->shape[1] * 8);
        probe->worth[bit] = ((float *)worth->buf)[bit];
    }
    probe->bias_worth = (float)bias;
    return 1;
}

static int rows_of(Buffers *buffers, PyObject *planes, PyObject *spread, PyObject *bias, PyObject *mask, Rows *rows)
{
    Py_buffer *plane = array(buffers, planes, "planes", 2, 8, 0);
    Py_buffer *lengths = plane ? array(buffers, spread, "spread", 1, 4, 0) : NULL;
    Py_buffer *shares = lengths ? array(buffers, bias, "bias", 1, 4, 0) : NULL;
    Py_buffer *flags = shares && mask != Py_None ? array(buffers, mask, "mask", 1, 1, 0) : NULL;
    if (shares == NULL || (mask != Py_None && flags == NULL))
        return 0;
    rows->words = plane->shape[0];
    rows->count = plane->shape[1];
    if (rows->words < 1 || rows->words > MAX_WORDS || rows->count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "planes: more words than a sketch has, or more rows than a segment");
        return 0;
    }
    if (!long_enough(lengths, "spread", rows->count) || !long_enough(shares, "bias", rows->count) ||
        (flags != NULL && !long_enough(flags, "mask", rows->count)))
        return 0;
    for (Py_ssize_t word = 0; word < rows->words; word++)
        rows->plane[word] = (const uint64_t *)((char *)plane->buf + word * plane->strides[0]);
    rows->spread = lengths->buf;
    rows->bias = shares->buf;
    rows->mask = flags == NULL ? NULL : flags->buf;
    return 1;
}

PyDoc_STRVAR(rank_doc, "rank(planes, spread, bias, signs, worths, bias_worth, out, /)\n--\n\n"
                       "What every row reaches in the first round.");

static PyObject *rank(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("rank", count, 7))
        return NULL;
    Buffers buffers = {.count = 0};
    Rows rows;
    Probe probe;
    int sound = rows_of(&buffers, given[0], given[1], given[2], Py_None, &rows) &&
                probe_of(&buffers, given[3], given[4], given[5], rows.words, &probe);
    Py_buffer *out = sound ? array(&buffers, given[6], "out", 1, 4, 1) : NULL;
    sound = out != NULL && long_enough(out, "out", rows.count);
    if (sound) {
        const Loops *loops = generations[generation];
        float *ranked = out->buf, agreed[BLOCK];
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t start = 0; start < rows.count; start += BLOCK)
            loops->rank(&rows, &probe, start, rows.count - start < BLOCK ? rows.count - start : BLOCK, agreed,
                        ranked + start);
        Py_END_ALLOW_THREADS
    }
    return finished(&buffers, sound);
}

PyDoc_STRVAR(narrow_doc,
             "narrow(planes, spread, bias, mask, signs, worths, bias_worth, bar, base, slots, estimates, /)\n--\n\n"
             "Put the rows that reach the bar, and what they reach in the second round, into two arrays; say how many.");

static PyObject *narrow(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("narrow", count, 11))
        return NULL;
    Buffers buffers = {.count = 0};
    Rows rows;
    Probe probe;
    PyObject *answer = NULL;
    Py_ssize_t found = 0;
    if (!rows_of(&buffers, given[0], given[1], given[2], given[3], &rows) ||
        !probe_of(&buffers, given[4], given[5], given[6], rows.words, &probe))
        goto end;
    double bar = PyFloat_AsDouble(given[7]);
    Py_ssize_t base = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(given[8]);
    if (PyErr_Occurred())
        goto end;
    Py_buffer *slots = array(&buffers, given[9], "slots", 1, 8, 1);
    Py_buffer *estimates = slots ? array(&buffers, given[10], "estimates", 1, 4, 1) : NULL;
    if (estimates == NULL || !long_enough(slots, "slots", rows.count) ||
        !long_enough(estimates, "estimates", rows.count))
        goto end;
    int64_t *places = slots->buf;
    float *reached = estimates->buf;
    const Loops *loops = generations[generation];
    Py_BEGIN_ALLOW_THREADS
    int32_t passed[ROOM];
    float agreed[ROOM];
    for (Py_ssize_t start = 0; start < rows.count; start += BLOCK) {
        Py_ssize_t size = rows.count - start < BLOCK ? rows.count - start : BLOCK;
        Py_ssize_t here = loops->pass(&rows, &probe, (float)bar, start, size, passed, agreed);
        loops->weigh(&rows, &probe, start, here, passed, agreed, reached + found);
        for (Py_ssize_t i = 0; i < here; i++)
            places[found + i] = base + start + passed[i];
        found += here;
    }
    Py_END_ALLOW_THREADS
    answer = PyLong_FromSsize_t(found);
end:
    release(&buffers);
    return answer;
}

PyDoc_STRVAR(weigh_doc, "weigh(planes, spread, bias, signs, worths, places, base, out, /)\n--\n\n"
                        "What some rows reach in the second round; a place, less the base, is a row.");

static PyObject *weigh(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("weigh", count, 8))
        return NULL;
    Buffers buffers = {.count = 0};
    Rows rows;
    Probe probe;
    PyObject *nothing = PyFloat_FromDouble(0);
    int sound = nothing != NULL && rows_of(&buffers, given[0], given[1], given[2], Py_None, &rows) &&
                probe_of(&buffers, given[3], given[4], nothing, rows.words, &probe);
    Py_buffer *places = sound ? array(&buffers, given[5], "places", 1, 8, 0) : NULL;
    Py_ssize_t base = places != NULL ? PyLong_AsSsize_t(given[6]) : 0;
    Py_buffer *out = places != NULL && !PyErr_Occurred() ? array(&buffers, given[7], "out", 1, 4, 1) : NULL;
    sound = out != NULL && long_enough(out, "out", places->shape[0]) &&
            all_within(places->buf, places->shape[0], base, rows.count);
    if (sound) {
        const Loops *loops = generations[generation];
        const int64_t *asked = places->buf;
        float *estimates = out->buf;
        Py_ssize_t all = places->shape[0];
        int32_t local[BLOCK];
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t start = 0; start < all; start += BLOCK) {
            Py_ssize_t size = all - start < BLOCK ? all - start : BLOCK;
            for (Py_ssize_t i = 0; i < size; i++)
                local[i] = (int32_t)(asked[start + i] - base);
            loops->weigh(&rows, &probe, 0, size, local, NULL, estimates + start);
        }
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    Py_XDECREF(nothing);
    if (!sound)
        return NULL;
    Py_RETURN_NONE;
}

/* A query as whole numbers of 16 bits at most, small enough for no sum of products with bytes to overflow. Returns
   what one step of them is worth. */
static float rounded(const float *query, Py_ssize_t dim, int16_t *steps)
{
    float most = 0, level = (float)(INT32_MAX / (dim * 128 + 128));
    for (Py_ssize_t d = 0; d < dim; d++)
        most = fabsf(query[d]) > most ? fabsf(query[d]) : most;
    level = level > INT16_MAX ? INT16_MAX : level;
    float per = most > 0 && most <= 1e30f ? level / most : 0;
    for (Py_ssize_t d = 0; d < dim; d++) {
        float step = query[d] * per;
        step = step > level ? level : step < -level ? -level : step;
        steps[d] = step == step ? (int16_t)lrintf(step) : 0;
    }
    return per > 0 ? 1 / per : 0;
}

PyDoc_STRVAR(coarse_doc, "coarse(codes, places, base, query, scale, out, /)\n--\n\n"
                         "The products of some rows of bytes with a query, each times the scale of its row.");

static PyObject *coarse(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("coarse", count, 6))
        return NULL;
    Buffers buffers = {.count = 0};
    int16_t *steps = NULL;
    Py_buffer *codes = array(&buffers, given[0], "codes", 2, 1, 0);
    Py_buffer *places = codes ? array(&buffers, given[1], "places", 1, 8, 0) : NULL;
    Py_ssize_t base = places ? PyLong_AsSsize_t(given[2]) : 0;
    Py_buffer *query = places && !PyErr_Occurred() ? array(&buffers, given[3], "query", 1, 4, 0) : NULL;
    Py_buffer *scale = query ? array(&buffers, given[4], "scale", 1, 4, 0) : NULL;
    Py_buffer *out = scale ? array(&buffers, given[5], "out", 1, 4, 1) : NULL;
    int sound = out != NULL && long_enough(out, "out", places->shape[0]) &&
                long_enough(query, "query", codes->shape[1]) && long_enough(scale, "scale", codes->shape[0]) &&
                all_within(places->buf, places->shape[0], base, codes->shape[0]);
    if (sound && codes->shape[1] >= 1 << 23) {
        PyErr_SetString(PyExc_ValueError, "codes: rows of more bytes than can be added up");
        sound = 0;
    }
    if (sound) {
        steps = calloc((size_t)codes->shape[1] + STEPS, sizeof *steps);
        sound = steps != NULL;
        if (!sound)
            PyErr_NoMemory();
    }
    if (sound) {
        const Loops *loops = generations[generation];
        const int64_t *asked = places->buf;
        const float *scales = scale->buf;
        float *answer = out->buf;
        Py_ssize_t all = places->shape[0];
        int32_t sums[BLOCK];
        Py_BEGIN_ALLOW_THREADS
        float worth = rounded(query->buf, codes->shape[1], steps);
        for (Py_ssize_t start = 0; start < all; start += BLOCK) {
            Py_ssize_t size = all - start < BLOCK ? all - start : BLOCK;
            loops->multiply(codes->buf, codes->strides[0], codes->shape[1], asked + start, base, size, steps, sums);
            for (Py_ssize_t i = 0; i < size; i++)
                answer[start + i] = (float)sums[i] * worth * scales[asked[start + i] - base];
        }
        Py_END_ALLOW_THREADS
    }
    free(steps);
    return finished(&buffers, sound);
}

PyMethodDef scan_methods[] = {
    METHOD(rank),
    METHOD(narrow),
    METHOD(weigh),
    METHOD(coarse),
    {NULL, NULL, 0, NULL},
};
