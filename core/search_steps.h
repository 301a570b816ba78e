/* What a whole search takes from the parts that do its steps. Nothing here asks for Python's lock. */

#ifndef SKEP_SEARCH_STEPS_H
#define SKEP_SEARCH_STEPS_H

#include "core.h"

#define MAX_WORDS 4 /* words of a sketch */
#define MAX_BITS 3  /* bits per axis of a query */
#define STEPS 64    /* coordinates of a query are padded to a multiple of so many */
#define TINY 1e-12

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

int rows_of(Buffers *buffers, PyObject *planes, PyObject *spread, PyObject *bias, PyObject *mask, Rows *rows);

/* What every row reaches in the first round. */
void rank_all(const Rows *rows, const Probe *probe, float *ranked);

/* The rows that reach the bar, and what they reach in the second round; both arrays have room for every row. */
Py_ssize_t narrow_all(const Rows *rows, const Probe *probe, float bar, int64_t base, int64_t *slots, float *estimates);

/* What some rows reach in the second round. */
void weigh_all(const Rows *rows, const Probe *probe, const int64_t *places, Py_ssize_t count, int64_t base,
               float *estimates);

/* A query as whole numbers, with room for STEPS more than it has; what one step of them is worth. */
float rounded(const float *query, Py_ssize_t dim, int16_t *steps);

/* The third round: rows of bytes times such a query, each times the scale of its row; minus infinity where that is 0. */
void multiply_all(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const float *scale, const int64_t *places,
                  Py_ssize_t count, int64_t base, const int16_t *query, float worth, float *out);

/* Some rows of a segment, and those of them that are asked for. */
typedef struct {
    const int8_t *high;
    const uint8_t *low;
    const float *scale;
    Py_ssize_t high_stride, low_stride, dim, count;
    const int64_t *places;
    int64_t base;
} Codes;

/* Exact cosines; nan where a row has no vector. `steps` has room for one more than a row has. */
void cosines_all(const Codes *codes, const double *query, double worth, int16_t *steps, float *out);

/* A query coded along the axes of a frame, with room for its coordinates and axes; returns its mean size. */
double probe_all(const float *axes, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t dim, const float *mean,
                 const float *vector, double step, float *room, Py_ssize_t bits, uint64_t *signs, Py_ssize_t next);

/* The `wanted`-th largest of `count` values, with room for as many bins and ordinals. */
float reached(const float *values, Py_ssize_t count, Py_ssize_t wanted, int32_t *bins, uint32_t *left);

/* The slots of the best `wanted` values, and of all that tie with the last, in their order; `out` may be `slots`. The
   room is twice the values. */
Py_ssize_t top_all(const float *values, Py_ssize_t count, Py_ssize_t wanted, const int64_t *slots, int64_t *out,
                   uint32_t *room);

/* The best few so far, the least of them first: a heap. */
typedef struct {
    int64_t slot, row;
    float value;
} Entry;

/* Of equal ones the smaller row is better. Where `rows` has them by slot, a row is looked up for that alone: most lie
   far apart. */
void offer(Entry *heap, Py_ssize_t *count, Py_ssize_t room, Entry entry, const int64_t *rows);

/* Sort some entries by their rows. */
void by_row(Entry *entries, Py_ssize_t count);

#endif
