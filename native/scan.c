/* The two loops of a vector search that numpy cannot do in one pass. `storage/segments/scan.py` says what they mean;
   everything here gives what its numpy code gives, `narrow` to the last bit and `coarse` up to the order of a sum. */

#include "native.h"

#define MAX_WORDS 4   /* words of a sketch */
#define MAX_BITS 3    /* bits per axis of a query */
#define BLOCK 1024    /* rows per step; what a step keeps fits the nearest cache */

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
    /* The places of the rows in [start, start + size) that reach the bar, and how many signs of each differ. */
    Py_ssize_t (*first_round)(const Rows *, const Probe *, float bar, Py_ssize_t start, Py_ssize_t size,
                              uint64_t *differing, int32_t *passed);
    /* The same of all rows that the mask admits. */
    Py_ssize_t (*no_round)(const Rows *, const Probe *, Py_ssize_t start, Py_ssize_t size, uint64_t *differing,
                           int32_t *passed);
    /* Cosines, up to a constant, of the rows that passed. */
    void (*second_round)(const Rows *, const Probe *, Py_ssize_t start, Py_ssize_t found, const uint64_t *differing,
                         const int32_t *passed, float *estimates);
    /* Rows of bytes times a query, each times its scale. */
    void (*products)(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const int64_t *places, Py_ssize_t count,
                     const float *query, const float *scale, float *out);
} Loops;

#define TARGET
#define NAMED(name) plain_##name
#include "loops.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET __attribute__((target("avx2,popcnt")))
#define NAMED(name) avx2_##name
#include "loops.h"

#define TARGET __attribute__((target("avx2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")))
#define NAMED(name) avx512_##name
#include "loops.h"
#endif

/* The fastest loops this processor can run. */
static const Loops *best_loops(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &avx512_loops;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"))
        return &avx2_loops;
#endif
    return &plain_loops;
}

static const Loops *loops;

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
    if (rows->words < 1 || rows->words > MAX_WORDS) {
        PyErr_SetString(PyExc_ValueError, "planes: more words than a sketch has");
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

PyDoc_STRVAR(narrow_doc,
             "narrow(planes, spread, bias, mask, signs, worths, bias_worth, bar, base, slots, estimates, /)\n--\n\n"
             "Put the rows that reach the bar, and what they reach in the second round, into two arrays; say how many.\n"
             "A bar of None lets every row of the mask through.");

static PyObject *narrow(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 11) {
        PyErr_SetString(PyExc_TypeError, "narrow takes 11 arguments");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Rows rows;
    Probe probe;
    PyObject *answer = NULL;
    Py_ssize_t found = 0;
    if (!rows_of(&buffers, given[0], given[1], given[2], given[3], &rows) ||
        !probe_of(&buffers, given[4], given[5], given[6], rows.words, &probe))
        goto end;
    int barred = given[7] != Py_None;
    double bar = barred ? PyFloat_AsDouble(given[7]) : 0;
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
    Py_BEGIN_ALLOW_THREADS
    uint64_t differing[BLOCK];
    int32_t passed[BLOCK];
    for (Py_ssize_t start = 0; start < rows.count; start += BLOCK) {
        Py_ssize_t size = rows.count - start < BLOCK ? rows.count - start : BLOCK;
        Py_ssize_t here = barred ? loops->first_round(&rows, &probe, (float)bar, start, size, differing, passed)
                                 : loops->no_round(&rows, &probe, start, size, differing, passed);
        loops->second_round(&rows, &probe, start, here, differing, passed, reached + found);
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

PyDoc_STRVAR(coarse_doc, "coarse(codes, places, query, scale, out, /)\n--\n\n"
                         "The products of some rows of bytes with a query, each times the scale of its row.");

static PyObject *coarse(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "coarse takes 5 arguments");
        return NULL;
    }
    Buffers buffers = {.count = 0};
    Py_buffer *codes = array(&buffers, given[0], "codes", 2, 1, 0);
    Py_buffer *places = codes ? array(&buffers, given[1], "places", 1, 8, 0) : NULL;
    Py_buffer *query = places ? array(&buffers, given[2], "query", 1, 4, 0) : NULL;
    Py_buffer *scale = query ? array(&buffers, given[3], "scale", 1, 4, 0) : NULL;
    Py_buffer *out = scale ? array(&buffers, given[4], "out", 1, 4, 1) : NULL;
    int sound = out != NULL && long_enough(out, "out", places->shape[0]) &&
                long_enough(query, "query", codes->shape[1]) && long_enough(scale, "scale", codes->shape[0]);
    for (Py_ssize_t i = 0; sound && i < places->shape[0]; i++) {
        int64_t at = ((const int64_t *)places->buf)[i];
        if (at < 0 || at >= codes->shape[0]) {
            PyErr_Format(PyExc_IndexError, "places: no row %zd among %zd", (Py_ssize_t)at, codes->shape[0]);
            sound = 0;
        }
    }
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        loops->products(codes->buf, codes->strides[0], codes->shape[1], places->buf, places->shape[0], query->buf,
                 scale->buf, out->buf);
        Py_END_ALLOW_THREADS
    }
    release(&buffers);
    if (!sound)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef scan_methods[] = {
    {"narrow", (PyCFunction)(void (*)(void))narrow, METH_FASTCALL, narrow_doc},
    {"coarse", (PyCFunction)(void (*)(void))coarse, METH_FASTCALL, coarse_doc},
    {NULL, NULL, 0, NULL},
};

void scan_start(void)
{
    loops = best_loops();
}
