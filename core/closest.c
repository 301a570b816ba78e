/* Late interaction: how near the word pieces of a query come to stretches of pieces. Products of whole numbers are
   exact in any order, so that `embedding/static.py` gives the same with numpy, to the last bit. */

#include <math.h>
#include <stdlib.h>

#include "native.h"

#define TOGETHER 4      /* pieces of a query that a row is multiplied with at once */
#define ABREAST 8       /* and whose cosines are compared at once */
#define AHEAD 6         /* rows that are fetched before they are multiplied */
#define LONGEST 0x10000 /* of a row, so that no sum overflows */

typedef struct {
    int32_t (*widen)(const int8_t *row, Py_ssize_t dim, int16_t *into);
    void (*multiply)(const int16_t *row, const int16_t *asked, Py_ssize_t count, Py_ssize_t dim, int32_t *out);
} Loops;

#define LOOPS "closest.h"
#include "generations.h"

/* The pieces of a query, and those they are compared with. */
typedef struct {
    const int8_t *rows;
    Py_ssize_t stride, dim, known; /* of the table */
    Py_ssize_t count, width;       /* of the pieces of the query, and rounded up to ABREAST */
    int16_t *asked;                /* rows of zeros after the last */
    double *shrink;                /* one divided by the length of each; 0 after the last */
    uint32_t *places;              /* by piece: its place among those that are met, plus one; 0: it is not */
    int32_t *met;                  /* every piece once */
    Py_ssize_t meets;              /* how many */
    float *cosines;                /* `width` for each of them */
    int16_t *row;                  /* of the piece at hand */
    int32_t *products;             /* of it and those of the query */
    float *best;                   /* `width` of the stretch at hand */
} Query;

/* A row in two bytes each; one divided by its length. */
static double widen(const Query *query, int32_t piece, int16_t *into)
{
    int32_t own = generations[generation]->widen(query->rows + piece * query->stride, query->dim, into);
    return own > 0 ? 1 / sqrt((double)own) : 0;
}

/* The cosines of every piece that is met; rows are fetched before they are multiplied. */
static void compare(const Query *query)
{
    for (Py_ssize_t i = 0; i < query->meets; i++) {
        float *cosines = query->cosines + i * query->width;
        if (i + AHEAD < query->meets)
            for (Py_ssize_t d = 0; d < query->dim; d += LINE)
                fetch(query->rows + query->met[i + AHEAD] * query->stride + d);
        double shrink = widen(query, query->met[i], query->row);
        generations[generation]->multiply(query->row, query->asked, query->width, query->dim, query->products);
        for (Py_ssize_t at = 0; at < query->width; at++)
            cosines[at] = (float)(query->products[at] * (query->shrink[at] * shrink));
    }
}

static const float *cosines_of(const Query *query, int32_t piece)
{
    return query->cosines + (Py_ssize_t)(query->places[piece] - 1) * query->width;
}

/* The best of a stretch. */
static void best_of(const Query *query, const int32_t *pieces, const int32_t *end)
{
    float *best = query->best;
    memcpy(best, cosines_of(query, *pieces), (size_t)query->width * sizeof *best);
    while (++pieces < end) {
        const float *other = cosines_of(query, *pieces);
        for (Py_ssize_t start = 0; start < query->width; start += ABREAST)
            for (int i = 0; i < ABREAST; i++)
                best[start + i] = other[start + i] > best[start + i] ? other[start + i] : best[start + i];
    }
}

static int all_known(const Py_buffer *pieces, const char *name, Py_ssize_t known)
{
    const int32_t *each = pieces->buf;
    for (Py_ssize_t i = 0; i < pieces->shape[0]; i++)
        if (each[i] < 0 || each[i] >= known) {
            PyErr_Format(PyExc_IndexError, "%s: a piece that is not among %zd", name, known);
            return 0;
        }
    return 1;
}

/* How many stretches texts have; -1 where their lengths are not those of all pieces. */
static Py_ssize_t stretches(const int32_t *lengths, Py_ssize_t texts, Py_ssize_t pieces, Py_ssize_t block)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < texts; pieces -= lengths[i++]) {
        if (lengths[i] < 0 || lengths[i] > pieces)
            return -1;
        count += (lengths[i] + block - 1) / block;
    }
    return pieces ? -1 : count;
}

/* Room for one more than there are: none of it is NULL for want of anything to hold. */
static int make_room(Query *query, const int32_t *pieces, Py_ssize_t count)
{
    query->width = (query->count + ABREAST - 1) / ABREAST * ABREAST;
    query->places = calloc((size_t)query->known + 1, sizeof *query->places);
    query->met = malloc((size_t)(count < query->known ? count + 1 : query->known + 1) * sizeof *query->met);
    for (Py_ssize_t i = 0; query->places != NULL && query->met != NULL && i < count; i++)
        if (!query->places[pieces[i]]) {
            query->met[query->meets] = pieces[i];
            query->places[pieces[i]] = (uint32_t)++query->meets;
        }
    query->asked = calloc((size_t)(query->width * query->dim) + 1, sizeof *query->asked);
    query->shrink = calloc((size_t)query->width + 1, sizeof *query->shrink);
    query->cosines = malloc(((size_t)query->meets * (size_t)query->width + 1) * sizeof *query->cosines);
    query->row = malloc((size_t)(query->dim + 1) * sizeof *query->row);
    query->products = malloc((size_t)(query->width + 1) * sizeof *query->products);
    query->best = malloc((size_t)(query->width + 1) * sizeof *query->best);
    if (query->places != NULL && query->met != NULL && query->asked != NULL && query->shrink != NULL &&
        query->cosines != NULL && query->row != NULL && query->products != NULL && query->best != NULL)
        return 1;
    PyErr_NoMemory();
    return 0;
}

PyDoc_STRVAR(closest_doc, "closest(rows, asked, pieces, lengths, block, out, /)\n--\n\n"
                          "The highest cosine of each piece that is asked for (rows of `out`) in each stretch of `block` pieces\n"
                          "of a text (its columns), of which the last may be shorter. `rows` has the numbers of every piece.");

static PyObject *closest(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("closest", count, 6))
        return NULL;
    Buffers buffers = {.count = 0};
    Query query = {.count = 0};
    Py_buffer *rows = array(&buffers, given[0], "rows", 2, 1, 0);
    Py_buffer *asked = rows ? array(&buffers, given[1], "asked", 1, 4, 0) : NULL;
    Py_buffer *pieces = asked ? array(&buffers, given[2], "pieces", 1, 4, 0) : NULL;
    Py_buffer *lengths = pieces ? array(&buffers, given[3], "lengths", 1, 4, 0) : NULL;
    Py_ssize_t block = lengths ? PyLong_AsSsize_t(given[4]) : 0;
    Py_buffer *out = lengths && !PyErr_Occurred() ? array(&buffers, given[5], "out", 2, 4, 1) : NULL;
    int sound = out != NULL && told(block > 0 && block <= LONGEST, "block: no length") &&
                told(rows->shape[1] <= LONGEST, "rows: too long") && all_known(asked, "asked", rows->shape[0]) &&
                all_known(pieces, "pieces", rows->shape[0]) && told(out->shape[0] == asked->shape[0], "out: too short") &&
                told(stretches(lengths->buf, lengths->shape[0], pieces->shape[0], block) == out->shape[1],
                     "lengths: not those of the pieces, or `out` has other stretches");
    if (sound) {
        query = (Query){.rows = rows->buf, .stride = rows->strides[0], .dim = rows->shape[1], .known = rows->shape[0],
                        .count = asked->shape[0]};
        sound = make_room(&query, pieces->buf, pieces->shape[0]);
    }
    if (sound) {
        const int32_t *piece = pieces->buf, *length = lengths->buf;
        Py_ssize_t column = 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < query.count; i++)
            query.shrink[i] = widen(&query, ((const int32_t *)asked->buf)[i], query.asked + i * query.dim);
        compare(&query);
        for (Py_ssize_t text = 0; text < lengths->shape[0]; text++)
            for (const int32_t *end = piece + length[text]; piece < end; column++) {
                const int32_t *last = end - piece > block ? piece + block : end;
                best_of(&query, piece, last);
                for (Py_ssize_t row = 0; row < query.count; row++)
                    ((float *)((char *)out->buf + row * out->strides[0]))[column] = query.best[row];
                piece = last;
            }
        Py_END_ALLOW_THREADS
    }
    free(query.asked);
    free(query.shrink);
    free(query.places);
    free(query.met);
    free(query.cosines);
    free(query.row);
    free(query.products);
    free(query.best);
    return finished(&buffers, sound);
}

PyMethodDef closest_methods[] = {
    METHOD(closest),
    {NULL, NULL, 0, NULL},
};
