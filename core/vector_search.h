/* A search by vectors, and what it reads. */

#ifndef SKEP_VECTOR_SEARCH_H
#define SKEP_VECTOR_SEARCH_H

#include "search_steps.h"

/* A segment or the tail: the slots from `base` on. */
typedef struct {
    Buffers buffers;
    int64_t base;
    Py_ssize_t count;
    int sketched, coded;
    Rows rows;
    Codes codes;
} Part;

typedef struct {
    /* What is searched. */
    Part *parts;
    Py_ssize_t number, count, tail; /* `tail`: the slot where the tail begins */
    const uint8_t *mask;
    const int64_t *row;
    /* The frame of the sketches, and a sample of them; NULL where they are not asked. */
    const float *axes, *mean;
    Py_ssize_t axes_stride, axes_count;
    double gain, step, mean_size;
    Rows sample;
    const int64_t *sampled;
    /* The query. */
    Py_ssize_t dim, bits;
    const float *single;
    const double *steps;
    double worth;
    /* How many to keep after each round, of how many admitted rows. */
    double first, admitted;
    int masked;
    Py_ssize_t second, third, k;
    /* The slots to begin with, if not all; the slots that are returned in any case. */
    const int64_t *given, *chosen;
    Py_ssize_t given_count, chosen_count;
    /* Room for every slot, and for choosing among them. */
    int64_t *slots;
    float *values;
    uint32_t *room;
} Search;

/* The pool in the order of its rows; -1 where there is no memory for it. */
Py_ssize_t pooled(const Search *search, int64_t *out, float *cosines);

int is_tuple(PyObject *given, const char *name);

/* Every part, one after the other, without a gap. */
int parts_of(PyObject *given, Search *search);

/* The frame and the sample from (axes, mean, gain, step, mean size, bits, planes, spread, bias, slots). */
int frame_of(Buffers *buffers, PyObject *given, Search *search);

/* Whether some slots ascend, each once. */
int ascending(const int64_t *slots, Py_ssize_t count, Py_ssize_t room);

#endif
