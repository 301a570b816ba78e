/* Fine codes: a query turned into the axes of the rows, its probe of the sketches, and exact cosines. The oracle is
   `src/skep/index/quantisation.py`. Turned coordinates are whole numbers, small enough for exact sums in any order. */

#include <math.h>
#include <stdlib.h>

#include "search_steps.h"

#define PARTS 15  /* steps of the lower half per step of the upper one */
#define MIDDLE 8  /* the lower half of a row that the upper half describes exactly */
#define AHEAD 6 /* rows that are fetched before they are multiplied */

typedef struct {
    void (*unpack)(const int8_t *high, const uint8_t *low, Py_ssize_t dim, int16_t *steps);
    double (*multiply)(const int16_t *steps, const double *query, Py_ssize_t dim);
    void (*project)(const float *rows, Py_ssize_t stride, Py_ssize_t count, Py_ssize_t dim, const float *vector,
                    float *out);
} Loops;

#define LOOPS "quantisation_loops.h"
#include "every_processor.h"

static void unpack(const Loops *loops, const Codes *codes, Py_ssize_t i, int16_t *steps)
{
    if (i + AHEAD < codes->count) {
        Py_ssize_t next = (Py_ssize_t)(codes->places[i + AHEAD] - codes->base);
        for (Py_ssize_t d = 0; d < codes->dim; d += LINE)
            fetch(codes->high + next * codes->high_stride + d);
        for (Py_ssize_t d = 0; d < codes->dim / 2; d += LINE)
            fetch(codes->low + next * codes->low_stride + d);
    }
    Py_ssize_t at = (Py_ssize_t)(codes->places[i] - codes->base);
    loops->unpack(codes->high + at * codes->high_stride, codes->low + at * codes->low_stride, codes->dim, steps);
}

void cosines_all(const Codes *codes, const double *query, double worth, int16_t *steps, float *out)
{
    const Loops *loops = generations[generation];
    for (Py_ssize_t i = 0; i < codes->count; i++) {
        float scale = codes->scale[codes->places[i] - codes->base];
        unpack(loops, codes, i, steps);
        double found = loops->multiply(steps, query, codes->dim) * worth * (double)scale;
        out[i] = scale == 0 ? NAN : (float)found;
    }
}

/* Where the parts of a vector that are mixed lie: at the front and, where not all of it fits, at the back. */
static Py_ssize_t part_of(Py_ssize_t dim)
{
    Py_ssize_t size = 1;
    while (size <= dim / 2)
        size *= 2;
    return size;
}

PyDoc_STRVAR(turn_doc, "turn(vector, length, signs, shrink, unit, /)\n--\n\n"
                       "A vector, divided by a length, in the turned axes, as bytes: in steps of one divided by the unit, eight\n"
                       "bytes each, and then as it is, four bytes each.");

static void turned(const float *vector, Py_ssize_t dim, float length, const float *flip, double shrink, double unit,
                   double *data, float *single)
{
    Py_ssize_t size = part_of(dim);
    for (Py_ssize_t d = 0; d < dim; d++) {
        float coordinate = vector[d] / length;
        data[d] = (double)coordinate * unit;
    }
    for (Py_ssize_t part = 0; part <= dim - size; part += dim - size ? dim - size : 1) {
        double *mine = data + part;
        for (Py_ssize_t d = 0; d < size; d++)
            mine[d] = rint(mine[d]) * flip[d];
        for (Py_ssize_t step = 1; step < size; step *= 2)
            for (Py_ssize_t start = 0; start < size; start += 2 * step)
                for (Py_ssize_t i = start; i < start + step; i++) {
                    double left = mine[i], right = mine[i + step];
                    mine[i] = left + right;
                    mine[i + step] = left - right;
                }
        for (Py_ssize_t d = 0; d < size; d++)
            mine[d] *= shrink;
    }
    double per = 1 / unit;
    for (Py_ssize_t d = 0; d < dim; d++) {
        data[d] = rint(data[d]);
        single[d] = (float)(data[d] * per);
    }
}

static PyObject *turn(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("turn", count, 5))
        return NULL;
    Buffers buffers = {.count = 0};
    PyObject *made = NULL;
    Py_buffer *vector = array(&buffers, given[0], "vector", 1, 4, 0);
    float length = vector ? (float)PyFloat_AsDouble(given[1]) : 1;
    Py_buffer *signs = vector && !PyErr_Occurred() ? array(&buffers, given[2], "signs", 1, 4, 0) : NULL;
    double shrink = signs ? PyFloat_AsDouble(given[3]) : 0;
    double unit = signs && !PyErr_Occurred() ? PyFloat_AsDouble(given[4]) : 0;
    Py_ssize_t dim = vector ? vector->shape[0] : 0;
    if (signs != NULL && !PyErr_Occurred() && long_enough(signs, "signs", part_of(dim)))
        made = PyBytes_FromStringAndSize(NULL, 12 * dim);
    if (made != NULL && dim > 0) {
        double *data = (double *)(void *)PyBytes_AsString(made);
        turned(vector->buf, dim, length, signs->buf, shrink, unit, data, (float *)(data + dim));
    }
    release(&buffers);
    return made;
}

/* Levels around the middle, their bits as planes. */
static void code(const float *turned, Py_ssize_t count, float per, Py_ssize_t bits, uint64_t *signs, Py_ssize_t stride)
{
    float middle = (float)(1 << (bits - 1)), most = (float)((1 << bits) - 1);
    for (Py_ssize_t i = 0; i < count; i++) {
        float level = turned[i] * per + middle;
        uint64_t steps = level > 0 ? (uint64_t)(level < most ? level : most) : 0;
        for (Py_ssize_t bit = 0; bit < bits; bit++)
            signs[bit * stride + i / 64] |= (steps >> (bits - 1 - bit) & 1) << i % 64;
    }
}

double probe_all(const float *axes, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t dim, const float *mean,
                 const float *vector, double step, float *room, Py_ssize_t bits, uint64_t *signs, Py_ssize_t next)
{
    float *turned = room + dim;
    double size = 0;
    for (Py_ssize_t d = 0; d < dim; d++)
        room[d] = vector[d] - mean[d];
    generations[generation]->project(axes, stride, rows, dim, room, turned);
    for (Py_ssize_t i = 0; i < rows; i++)
        size += (double)turned[i] * turned[i];
    size = sqrt(size / (double)rows);
    size = size > TINY ? size : TINY;
    for (Py_ssize_t bit = 0; bit < bits; bit++)
        memset(signs + bit * next, 0, (size_t)(rows / 64) * 8);
    code(turned, rows, (float)(0.5 / (step * size)), bits, signs, next);
    return size;
}

PyMethodDef codes_methods[] = {
    METHOD(turn),
    {NULL, NULL, 0, NULL},
};
