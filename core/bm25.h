/* Terms and their postings, as a search adds them up. Nothing here asks for Python's lock but what reads arguments. */

#ifndef SKEP_BM25_H
#define SKEP_BM25_H

#include <math.h>

#include "core.h"

#define OUTSIDE "postings: they lead out of the arrays"

/* The terms of one segment: sorted keys, where the postings of each begin, and how many of them are of dead rows. */
typedef struct {
    const uint64_t *keys;
    const int64_t *offsets, *dead; /* `dead` is NULL where none is */
    Py_ssize_t count;
} Terms;

/* The postings of some terms in one part of the table. */
typedef struct {
    const uint32_t *docs;
    const void *classes; /* NULL: each posting has an impact of its own */
    int wide;            /* whether classes have four bytes */
    const float *impacts, *worths;
    const int64_t *starts, *sizes;
    Py_ssize_t terms, kinds, postings; /* kinds: how many impacts there are */
} Lists;

/* Scores by slot, and the slots whose score is not 0, each once. */
typedef struct {
    float *scores;
    int64_t *slots;
    Py_ssize_t count, room, filled;
} Sums;

/* A term: the rarest is added first, so that sums are rounded alike whatever the segments. */
typedef struct {
    float worth;
    uint64_t key;
    Py_ssize_t at;
} Term;

/* From (keys, offsets, dead), where the last may be None. */
int terms_of(Buffers *buffers, PyObject *given, Terms *terms);

/* Where the postings of a key begin and how many there are; how many of them are of live rows. */
int64_t find_one(const Terms *terms, uint64_t key, int64_t *start, int64_t *size);

/* How rare a term is that stands in so many of the live rows; `idf` in `bm25.py` has the formula. */
static inline double rarity(double live, int64_t found)
{
    return log1p((live - (double)found + 0.5) / ((double)found + 0.5));
}

/* Lists from three arguments on (docs, classes, impacts), of no term yet. */
int postings_of(Buffers *buffers, PyObject *const *given, Lists *lists);

/* Whether the postings of every term lie within the arrays. */
int all_inside(const Lists *lists);

/* Add up what the terms give; 0 where a posting leads out of the arrays. */
int add_up(const Lists *lists, const Term *terms, Py_ssize_t base, Sums *sums);

/* Take back what an earlier query added, of which the slots are known unless `filled` is below 0. */
int clear(Sums *sums);

/* For `qsort`. */
int rarest_first(const void *left, const void *right);

#endif
