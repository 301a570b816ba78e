/* The best of many, and where rows stand. */

#include <stdlib.h>

#include "inside.h"

#define BINS 2048 /* 2 ** 11: three rounds decide 32 bits */
#define FEW 48    /* so few are sorted */

typedef struct {
    void (*extremes)(const float *values, Py_ssize_t count, float *least, float *most);
    /* Which of BINS bins of one width each value falls into. */
    void (*bins_of)(const float *values, Py_ssize_t count, float low, float scale, int32_t *bins);
    /* The bits of the values in one bin. */
    Py_ssize_t (*pick)(const float *values, const int32_t *bins, Py_ssize_t count, int32_t bin, uint32_t *picked);
    /* The slots of the values that are large enough; `out` may be `slots`. */
    Py_ssize_t (*keep)(const float *values, Py_ssize_t count, float least, const int64_t *slots, int64_t *out);
} Loops;

#define TARGET
#define NAMED(name) plain_##name
#include "chosen.h"

#ifdef WIDE
#include <immintrin.h>

#define TARGET FOR_AVX2
#define NAMED(name) avx2_##name
#include "chosen.h"

FOR_AVX512 static void avx512_extremes(const float *values, Py_ssize_t count, float *least, float *most)
{
    __m512 low = _mm512_set1_ps(values[0]), high = low;
    for (Py_ssize_t i = 0; i < count; i += 16) {
        __mmask16 there = count - i >= 16 ? 0xffff : (__mmask16)((1u << (count - i)) - 1);
        __m512 own = _mm512_mask_loadu_ps(low, there, values + i);
        low = _mm512_min_ps(own, low);
        high = _mm512_max_ps(own, high);
    }
    *least = _mm512_reduce_min_ps(low);
    *most = _mm512_reduce_max_ps(high);
}

FOR_AVX512 static Py_ssize_t avx512_pick(const float *values, const int32_t *bins, Py_ssize_t count, int32_t bin,
                                         uint32_t *picked)
{
    __m512i wanted = _mm512_set1_epi32(bin);
    Py_ssize_t found = 0, i = 0;
    for (; i + 16 <= count; i += 16) {
        __mmask16 there = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(bins + i), wanted);
        if (there != 0) {
            _mm512_mask_compressstoreu_epi32(picked + found, there, _mm512_loadu_si512(values + i));
            found += __builtin_popcount(there);
        }
    }
    for (; i < count; i++)
        if (bins[i] == bin)
            memcpy(&picked[found++], &values[i], 4);
    return found;
}

FOR_AVX512 static Py_ssize_t avx512_keep(const float *values, Py_ssize_t count, float least, const int64_t *slots,
                                         int64_t *out)
{
    __m256 bar = _mm256_set1_ps(least);
    Py_ssize_t found = 0, i = 0;
    for (; i + 8 <= count; i += 8) {
        __mmask8 enough = _mm256_cmp_ps_mask(_mm256_loadu_ps(values + i), bar, _CMP_GE_OQ);
        __m512i own = _mm512_loadu_si512(slots + i); /* what is stored ends at most where this ends */
        _mm512_storeu_si512(out + found, _mm512_maskz_compress_epi64(enough, own));
        found += __builtin_popcount(enough);
    }
    for (; i < count; i++) {
        out[found] = slots[i];
        found += values[i] >= least;
    }
    return found;
}

#define BY_HAND
#define TARGET FOR_AVX512
#define NAMED(name) avx512_##name
#include "chosen.h"
static const Loops *const generations[] = {&plain_loops, &avx2_loops, &avx512_loops};
#else
static const Loops *const generations[] = {&plain_loops};
#endif

/* Numbers as whole ones in the same order; both zeros are one. */
static inline uint32_t ordinal(float value)
{
    uint32_t bits;
    value += 0.0f;
    memcpy(&bits, &value, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline float number(uint32_t ordinal)
{
    float value;
    ordinal = ordinal & 0x80000000u ? ordinal & 0x7fffffffu : ~ordinal;
    memcpy(&value, &ordinal, 4);
    return value;
}

/* The bin that holds the `wanted`-th largest, and how many are wanted of that bin. */
static int32_t bin_of(const uint32_t *sizes, Py_ssize_t *wanted)
{
    int32_t bin = BINS - 1;
    for (; bin > 0 && *wanted > (Py_ssize_t)sizes[bin]; bin--)
        *wanted -= sizes[bin];
    return bin;
}

/* The `wanted`-th largest of some ordinals, eleven bits at a time. */
static float among(uint32_t *left, Py_ssize_t count, Py_ssize_t wanted)
{
    for (;;) {
        uint32_t low = UINT32_MAX, high = 0, sizes[BINS] = {0};
        int shift = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            low = left[i] < low ? left[i] : low;
            high = left[i] > high ? left[i] : high;
        }
        while ((high - low) >> shift >= BINS)
            shift++;
        for (Py_ssize_t i = 0; i < count; i++)
            sizes[(left[i] - low) >> shift]++;
        uint32_t bin = (uint32_t)bin_of(sizes, &wanted);
        if (shift == 0)
            return number(low + bin);
        Py_ssize_t kept = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            uint32_t own = left[i];
            left[kept] = own;
            kept += (own - low) >> shift == bin;
        }
        count = kept;
    }
}

/* The `wanted`-th largest of `count` values, with room for as many bins and ordinals. Bins of one width leave few. */
float reached(const float *values, Py_ssize_t count, Py_ssize_t wanted, int32_t *bins, uint32_t *left)
{
    const Loops *loops = generations[generation];
    float low, high;
    loops->extremes(values, count, &low, &high);
    float scale = (BINS - 1) / (high - low);
    if (!(low > -1e30f && high < 1e30f && scale > 0 && scale < 1e30f)) {
        for (Py_ssize_t i = 0; i < count; i++)
            left[i] = ordinal(values[i]);
        return among(left, count, wanted);
    }
    uint32_t sizes[BINS] = {0};
    loops->bins_of(values, count, low, scale, bins);
    for (Py_ssize_t i = 0; i < count; i++)
        sizes[bins[i]]++;
    int32_t bin = bin_of(sizes, &wanted);
    Py_ssize_t kept = loops->pick(values, bins, count, bin, left);
    for (Py_ssize_t i = 0; i < kept; i++) {
        float own;
        memcpy(&own, &left[i], 4);
        left[i] = ordinal(own);
    }
    if (kept > FEW)
        return among(left, kept, wanted);
    for (Py_ssize_t i = 1; i < kept; i++) { /* largest first */
        uint32_t own = left[i];
        Py_ssize_t at = i;
        for (; at > 0 && left[at - 1] < own; at--)
            left[at] = left[at - 1];
        left[at] = own;
    }
    return number(left[wanted - 1]);
}

Py_ssize_t top_all(const float *values, Py_ssize_t count, Py_ssize_t wanted, const int64_t *slots, int64_t *out,
                   uint32_t *room)
{
    if (wanted >= count) {
        memmove(out, slots, (size_t)count * sizeof *out);
        return count;
    }
    float least = reached(values, count, wanted, (int32_t *)(room + count), room);
    return generations[generation]->keep(values, count, least, slots, out);
}

static inline int64_t row_of(const Entry *entry, const int64_t *rows)
{
    return rows == NULL ? entry->row : rows[entry->slot];
}

static inline int worse(const Entry *a, const Entry *b, const int64_t *rows)
{
    return a->value < b->value || (a->value == b->value && row_of(a, rows) > row_of(b, rows));
}

static void sink(Entry *heap, Py_ssize_t count, Py_ssize_t at, Entry entry, const int64_t *rows)
{
    for (Py_ssize_t below; (below = 2 * at + 1) < count; at = below) {
        if (below + 1 < count && worse(&heap[below + 1], &heap[below], rows))
            below++;
        if (!worse(&heap[below], &entry, rows))
            break;
        heap[at] = heap[below];
    }
    heap[at] = entry;
}

void offer(Entry *heap, Py_ssize_t *count, Py_ssize_t room, Entry entry, const int64_t *rows)
{
    if (*count < room) {
        Py_ssize_t at = (*count)++;
        for (; at > 0 && worse(&entry, &heap[(at - 1) / 2], rows); at = (at - 1) / 2)
            heap[at] = heap[(at - 1) / 2];
        heap[at] = entry;
    } else if (worse(&heap[0], &entry, rows))
        sink(heap, *count, 0, entry, rows);
}

/* Take the entries of a heap apart: best first. */
static void unload(Entry *heap, Py_ssize_t count, const int64_t *rows, int64_t *out)
{
    while (count > 0) {
        out[--count] = heap[0].slot;
        sink(heap, count, 0, heap[count], rows);
    }
}

#define SORTED sorted_by_row
#define BEFORE(one, other) ((one)->row < (other)->row)
#define WITH
#include "merging.h"

void by_row(Entry *entries, Entry *room, Py_ssize_t count)
{
    const Entry *sorted = sorted_by_row(entries, room, count);
    if (sorted != entries)
        memcpy(entries, sorted, (size_t)count * sizeof *entries);
}

PyDoc_STRVAR(best_doc, "best(values, slots, rows, k, out, /)\n--\n\n"
                       "Put the slots of the `k` largest values, each beside its slot, into `out`, best first, ties broken by row.");

static PyObject *best(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("best", count, 5))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *values = array(&buffers, given[0], "values", 1, 4, 0);
    Py_buffer *slots = values ? array(&buffers, given[1], "slots", 1, 8, 0) : NULL;
    Py_buffer *rows = slots ? array(&buffers, given[2], "rows", 1, 8, 0) : NULL;
    Py_ssize_t k = rows ? PyLong_AsSsize_t(given[3]) : -1;
    Py_buffer *out = rows && !PyErr_Occurred() ? array(&buffers, given[4], "out", 1, 8, 1) : NULL;
    Py_ssize_t all = out ? slots->shape[0] : 0, found = 0;
    k = k < 0 ? 0 : k > all ? all : k;
    int sound = out != NULL && long_enough(values, "values", all) && long_enough(out, "out", k) &&
                all_within(slots->buf, all, 0, rows->shape[0]);
    Entry *heap = sound ? malloc((size_t)(k + 1) * sizeof *heap) : NULL;
    if (sound && heap == NULL) {
        PyErr_NoMemory();
        sound = 0;
    }
    if (sound) {
        const float *each = values->buf;
        const int64_t *from = slots->buf, *row = rows->buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < all; i++)
            if (found < k || (k > 0 && each[i] >= heap[0].value))
                offer(heap, &found, k, (Entry){from[i], 0, each[i]}, row);
        unload(heap, found, row, out->buf);
        Py_END_ALLOW_THREADS
    }
    free(heap);
    return finished(&buffers, sound);
}

PyDoc_STRVAR(locate_doc, "locate(rows, order, alive, asked, base, out, /)\n--\n\n"
                         "Put the slots of those of some rows that stand among others and are alive into `out`. A slot is a\n"
                         "place plus the base; `order` is the places by ascending row, None where that is their own order, and\n"
                         "`alive` has one flag per place.");

/* A place in the order of rows as one among them; `count`, which is none, where the order leads elsewhere. */
static inline Py_ssize_t placed(const uint32_t *order, Py_ssize_t at, Py_ssize_t count)
{
    Py_ssize_t place = order == NULL ? at : (Py_ssize_t)order[at];
    return place < count ? place : count;
}

Py_ssize_t place_of(const int64_t *rows, const uint32_t *order, Py_ssize_t count, int64_t row)
{
    Py_ssize_t at = 0, end = count, first = count > 0 ? placed(order, 0, count) : count;
    if (first == count)
        return count;
    uint64_t guess = (uint64_t)row - (uint64_t)rows[first]; /* where rows were never forgotten */
    if (guess < (uint64_t)count) {
        Py_ssize_t place = placed(order, (Py_ssize_t)guess, count);
        if (place < count && rows[place] == row)
            return place;
    } else { /* before the first, or beyond the last, as rows of other segments are */
        Py_ssize_t last = placed(order, count - 1, count);
        if (last == count || row < rows[first] || row > rows[last])
            return count;
    }
    while (at < end) {
        Py_ssize_t middle = at + (end - at) / 2, place = placed(order, middle, count);
        if (place == count)
            return count;
        if (rows[place] < row)
            at = middle + 1;
        else
            end = middle;
    }
    Py_ssize_t place = at < count ? placed(order, at, count) : count;
    return place < count && rows[place] == row ? place : count;
}

static PyObject *locate(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("locate", count, 6))
        return NULL;
    Buffers buffers = {.count = 0};
    Py_buffer *rows = array(&buffers, given[0], "rows", 1, 8, 0), *order = NULL;
    int sound = rows != NULL;
    if (sound && given[1] != Py_None) {
        order = array(&buffers, given[1], "order", 1, 4, 0);
        sound = order != NULL && long_enough(order, "order", rows->shape[0]);
    }
    Py_buffer *alive = sound ? array(&buffers, given[2], "alive", 1, 1, 0) : NULL;
    Py_buffer *asked = alive ? array(&buffers, given[3], "asked", 1, 8, 0) : NULL;
    Py_ssize_t base = asked ? PyLong_AsSsize_t(given[4]) : -1;
    Py_buffer *out = asked && !PyErr_Occurred() ? array(&buffers, given[5], "out", 1, 8, 1) : NULL;
    sound = out != NULL && long_enough(alive, "alive", rows->shape[0]) && long_enough(out, "out", asked->shape[0]);
    for (Py_ssize_t i = 0; sound && i < asked->shape[0]; i++) {
        Py_ssize_t place = place_of(rows->buf, order ? order->buf : NULL, rows->shape[0], ((const int64_t *)asked->buf)[i]);
        if (place < rows->shape[0] && ((const uint8_t *)alive->buf)[place])
            ((int64_t *)out->buf)[i] = base + place;
    }
    return finished(&buffers, sound);
}

PyMethodDef choose_methods[] = {
    METHOD(best),
    METHOD(locate),
    {NULL, NULL, 0, NULL},
};
