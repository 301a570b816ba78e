/* Top k: the best few of many values, by a heap or by counting into bins. */

#include <stdlib.h>

#include "search_steps.h"

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

#define LOOPS "top_k_loops.h"
#include "every_processor.h"

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

static int smaller_row(const void *left, const void *right)
{
    int64_t one = ((const Entry *)left)->row, other = ((const Entry *)right)->row;
    return (one > other) - (one < other);
}

void by_row(Entry *entries, Py_ssize_t count)
{
    qsort(entries, (size_t)count, sizeof *entries, smaller_row);
}
