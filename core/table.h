/* A table of rows as searches read it: its words, its vectors and what is known of its rows, looked at once and held
   while the table stays as it is. */

#ifndef SKEP_TABLE_H
#define SKEP_TABLE_H

#include "bm25.h"
#include "vector_search.h"

/* A segment: the slots from `base` on, with their words. */
typedef struct {
    Buffers buffers;
    Py_ssize_t base;
    Terms terms;
    Lists lists;
} Worded;

/* Memory that one search after the other uses, and a later table takes over. */
typedef struct {
    Sums sums;
    int64_t *slots;
    float *values;
    uint32_t *room;
    Py_ssize_t slots_room, values_room, room_room;
} Desk;

typedef struct {
    PyObject_HEAD
    Buffers buffers, framing;
    Py_ssize_t count, base; /* slots there are; the slot where the tail begins */
    double live;
    const int64_t *rows;
    Worded *worded;
    Py_ssize_t segments;
    Search near; /* the vectors, and the frame once there is one */
    Desk desk;
    int busy;
} Table;

/* Room for the scores of every slot, and for a search by vectors; 0 where there is no memory for it. */
int scores_fit(Desk *desk, Py_ssize_t count);
int vectors_fit(Desk *desk, const Search *near);

/* Methods of a table. */
PyObject *table_pool(PyObject *self, PyObject *const *given, Py_ssize_t count);
extern const char pool_doc[];

#endif
