/* The three rounds of a vector search: sketches against the signs of the query, sketches against three bits per axis,
   the coarse half of the fine codes. The oracle is `_Steps` in `src/skep/index/vector_search.py`. */

#include <math.h>
#include <stdlib.h>

#include "search_steps.h"

#define BLOCK 1024  /* rows per step; what a step keeps fits the nearest cache */
#define ROOM (BLOCK + 8)
#define AHEAD 20 /* rows that are fetched before they are multiplied */

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
#include "scan_loops.h"

#ifdef WIDE
#define TARGET FOR_AVX2
#define NAMED(name) avx2_##name
#include "scan_loops.h"
#include "scan_avx512.h"
static const Loops *const generations[] = {&plain_loops, &avx2_loops, &avx512_loops};
#else
static const Loops *const generations[] = {&plain_loops};
#endif

int rows_of(Buffers *buffers, PyObject *planes, PyObject *spread, PyObject *bias, PyObject *mask, Rows *rows)
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

void rank_all(const Rows *rows, const Probe *probe, float *ranked)
{
    float agreed[BLOCK];
    for (Py_ssize_t start = 0; start < rows->count; start += BLOCK)
        generations[generation]->rank(rows, probe, start, rows->count - start < BLOCK ? rows->count - start : BLOCK,
                                      agreed, ranked + start);
}

Py_ssize_t narrow_all(const Rows *rows, const Probe *probe, float bar, int64_t base, int64_t *slots, float *estimates)
{
    const Loops *loops = generations[generation];
    Py_ssize_t found = 0;
    int32_t passed[ROOM];
    float agreed[ROOM];
    for (Py_ssize_t start = 0; start < rows->count; start += BLOCK) {
        Py_ssize_t size = rows->count - start < BLOCK ? rows->count - start : BLOCK;
        Py_ssize_t here = loops->pass(rows, probe, bar, start, size, passed, agreed);
        loops->weigh(rows, probe, start, here, passed, agreed, estimates + found);
        for (Py_ssize_t i = 0; i < here; i++)
            slots[found + i] = base + start + passed[i];
        found += here;
    }
    return found;
}

void weigh_all(const Rows *rows, const Probe *probe, const int64_t *places, Py_ssize_t count, int64_t base,
               float *estimates)
{
    int32_t local[BLOCK];
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t size = count - start < BLOCK ? count - start : BLOCK;
        for (Py_ssize_t i = 0; i < size; i++)
            local[i] = (int32_t)(places[start + i] - base);
        generations[generation]->weigh(rows, probe, 0, size, local, NULL, estimates + start);
    }
}

void multiply_all(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const float *scale, const int64_t *places,
                  Py_ssize_t count, int64_t base, const int16_t *query, float worth, float *out)
{
    int32_t sums[BLOCK];
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t size = count - start < BLOCK ? count - start : BLOCK;
        for (Py_ssize_t i = 0; i < size; i++)
            fetch(scale + (places[start + i] - base));
        generations[generation]->multiply(codes, stride, dim, places + start, base, size, query, sums);
        for (Py_ssize_t i = 0; i < size; i++) {
            float own = scale[places[start + i] - base];
            out[start + i] = own > 0 ? (float)sums[i] * worth * own : -INFINITY;
        }
    }
}

/* A query as whole numbers of 16 bits at most, small enough for no sum of products with bytes to overflow. Returns
   what one step of them is worth. */
float rounded(const float *query, Py_ssize_t dim, int16_t *steps)
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
