/* The candidates of one recall, some hundred of them: their signals, their places and their order. */

#include "native.h"

#define FEW 256        /* candidates that are sorted without asking for memory */
#define LONG_LOOP 4096 /* from so many on, others may run meanwhile */

#define WORDED 1 /* some word matched */
#define PLACED 2 /* some candidate has a cosine */

typedef struct {
    double value;
    int64_t at;
} Entry;

/* What decides between equal scores; nothing does where `rows` is missing. */
typedef struct {
    const double *importance, *created_at;
    const int64_t *rows, *at;
} Ties;

/* Whether one number comes before another where the largest is first; what is no number comes last. */
static inline int larger(double one, double other)
{
    return one > other || (other != other && one == one);
}

static int before(const Entry *one, const Entry *other, const Ties *ties)
{
    if (larger(one->value, other->value))
        return 1;
    if (larger(other->value, one->value) || ties->rows == NULL)
        return 0;
    int64_t a = ties->at[one->at], b = ties->at[other->at];
    const double *const columns[] = {ties->importance, ties->created_at};
    for (int i = 0; i < 2; i++) {
        if (larger(columns[i][a], columns[i][b]))
            return 1;
        if (larger(columns[i][b], columns[i][a]))
            return 0;
    }
    return ties->rows[a] < ties->rows[b];
}

#define SORTED sorted
#define BEFORE(one, other) before(one, other, ties)
#define WITH , const Ties *ties
#include "merging.h"

/* Sort by values; `NULL` where there is no memory for it, which is then said. */
static Entry *by_value(const double *values, Py_ssize_t count, const Ties *ties, Entry *few, Entry **asked)
{
    Entry *entries = count <= FEW ? few : (*asked = PyMem_Malloc((size_t)count * 2 * sizeof *entries));
    if (entries == NULL)
        return (Entry *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++)
        entries[i] = (Entry){values[i], i};
    if (count < LONG_LOOP)
        return sorted(entries, entries + count, count, ties);
    Entry *found;
    Py_BEGIN_ALLOW_THREADS
    found = sorted(entries, entries + count, count, ties);
    Py_END_ALLOW_THREADS
    return found;
}

/* Places from 1 by falling value; equal values share the better one, what is no number the last. */
static int rank_into(const double *values, Py_ssize_t size, int64_t *out)
{
    Entry few[2 * FEW], *asked = NULL;
    const Ties none = {NULL, NULL, NULL, NULL};
    Py_ssize_t alike = 0;
    while (alike < size && !larger(values[alike], values[0]) && !larger(values[0], values[alike]))
        out[alike++] = 1;
    if (alike == size) /* as where no word was looked up, or no vector */
        return 1;
    Entry *found = by_value(values, size, &none, few, &asked);
    int64_t place = 1;
    for (Py_ssize_t i = 0; found != NULL && i < size; i++) {
        if (i && larger(found[i - 1].value, found[i].value) && found[i - 1].value > -Py_HUGE_VAL)
            place = i + 1;
        out[found[i].at] = place;
    }
    PyMem_Free(asked);
    return found != NULL;
}

/* Scores by words as shares of the best, and cosines within 0..1; which of them there are. */
static int share_out(const double *words, const double *cosine, Py_ssize_t size, double *lexical, double *semantic)
{
    double best = 0.0;
    int odd = 0, known = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        best = words[i] > best ? words[i] : best;
        odd |= words[i] != words[i];
        known |= cosine[i] == cosine[i] ? PLACED : 0;
        double raised = cosine[i] >= 0.0 ? cosine[i] : 0.0;
        semantic[i] = raised <= 1.0 ? raised : 1.0;
    }
    for (Py_ssize_t i = 0; i < size; i++)
        lexical[i] = best > 0.0 && words[i] > 0.0 ? words[i] / best : 0.0;
    return best > 0.0 && !odd ? known | WORDED : known;
}

PyDoc_STRVAR(rates_doc, "rates(words, cosine, signals, places, /)\n--\n\n"
                        "Writes two rows of signals, scores by words as shares of the best and cosines within 0..1, and\n"
                        "two rows of places by both; whether there are any of the first (1) and of the second (2).");

static PyObject *rates(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *words, *cosine, *signals, *ranks;
    int known = 0;
    int sound = is_count("rates", count, 4) && (words = array(&buffers, given[0], "words", 1, 8, 0)) != NULL &&
                (cosine = array(&buffers, given[1], "cosine", 1, 8, 0)) != NULL &&
                (signals = array(&buffers, given[2], "signals", 2, 8, 1)) != NULL &&
                (ranks = array(&buffers, given[3], "places", 2, 8, 1)) != NULL &&
                long_enough(cosine, "cosine", words->shape[0]) && long_enough(signals, "signals", 2) &&
                long_enough(ranks, "places", 2);
    if (sound && (signals->shape[1] < words->shape[0] || ranks->shape[1] < words->shape[0])) {
        PyErr_SetString(PyExc_ValueError, "signals, places: too short for the words");
        sound = 0;
    }
    if (sound) {
        Py_ssize_t size = words->shape[0];
        char *s = signals->buf, *r = ranks->buf;
        known = share_out(words->buf, cosine->buf, size, (double *)s, (double *)(s + signals->strides[0]));
        sound = rank_into(words->buf, size, (int64_t *)r) &&
                rank_into(cosine->buf, size, (int64_t *)(r + ranks->strides[0]));
    }
    release(&buffers);
    return sound ? PyLong_FromLong(known) : NULL;
}

PyDoc_STRVAR(stretch_doc, "stretch(values, out, /)\n--\n\n"
                          "Values stretched to 0..1; 0 for what is no number, and for all where all are alike.");

static PyObject *stretch(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *values, *out;
    int sound = is_count("stretch", count, 2) && (values = array(&buffers, given[0], "values", 1, 8, 0)) != NULL &&
                (out = array(&buffers, given[1], "out", 1, 8, 1)) != NULL &&
                long_enough(out, "out", values->shape[0]);
    if (sound) {
        Py_ssize_t size = values->shape[0];
        const double *from = values->buf;
        double *to = out->buf, low = 0.0, high = 0.0;
        int any = 0;
        for (Py_ssize_t i = 0; i < size; i++)
            if (from[i] == from[i]) {
                low = !any || from[i] < low ? from[i] : low;
                high = !any || from[i] > high ? from[i] : high;
                any = 1;
            }
        double width = high - low;
        for (Py_ssize_t i = 0; i < size; i++)
            to[i] = high > low && from[i] == from[i] ? (from[i] - low) / width : 0.0;
    }
    return finished(&buffers, sound);
}

PyDoc_STRVAR(read_off_doc, "read_off(values, points, heights, rises, out, /)\n--\n\n"
                           "Values on a scale of straight lines between points that lie evenly from -1 to 1; float32\n"
                           "in, float32 out. What is no number stays what it is.");

static PyObject *read_off(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *values, *points, *heights, *rises, *out;
    int sound = is_count("read_off", count, 5) && (values = array(&buffers, given[0], "values", 1, 4, 0)) != NULL &&
                (points = array(&buffers, given[1], "points", 1, 8, 0)) != NULL &&
                (heights = array(&buffers, given[2], "heights", 1, 8, 0)) != NULL &&
                (rises = array(&buffers, given[3], "rises", 1, 8, 0)) != NULL &&
                (out = array(&buffers, given[4], "out", 1, 4, 1)) != NULL && long_enough(points, "points", 2) &&
                long_enough(heights, "heights", points->shape[0]) &&
                long_enough(rises, "rises", points->shape[0] - 1) && long_enough(out, "out", values->shape[0]);
    if (sound) {
        const float *from = values->buf;
        const double *p = points->buf, *h = heights->buf, *r = rises->buf;
        float *to = out->buf;
        double last = (double)(points->shape[0] - 2), steps = (last + 1.0) / 2.0;
        for (Py_ssize_t i = 0; i < values->shape[0]; i++) {
            double exact = from[i] < -1.0f ? -1.0 : from[i] > 1.0f ? 1.0 : (double)from[i];
            double place = ((exact == exact ? exact : -1.0) + 1.0) * steps;
            Py_ssize_t left = (Py_ssize_t)(place < last ? place : last);
            to[i] = (float)(r[left] * (exact - p[left]) + h[left]);
        }
    }
    return finished(&buffers, sound);
}

/* Where a value stands on a scale of straight lines between points; `left` is the point before the last one that was
   asked for. */
static float height_at(double value, const double *points, const double *heights, Py_ssize_t last, Py_ssize_t *left)
{
    if (value < points[0])
        return (float)heights[0];
    if (value >= points[last])
        return (float)heights[last];
    if (value != value)
        return (float)value;
    while (value < points[*left])
        --*left;
    while (value >= points[*left + 1])
        ++*left;
    double low = points[*left], from = heights[*left];
    double rise = (heights[*left + 1] - from) / (points[*left + 1] - low);
    return (float)(value == low ? from : rise * (value - low) + from);
}

PyDoc_STRVAR(between_doc, "between(values, points, heights, out, /)\n--\n\n"
                          "Values on a scale of straight lines between points that ascend; before the first and after the last it\n"
                          "stays as it is there. Float32 in, float32 out; what is no number stays what it is.");

static PyObject *between(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *values, *points, *heights, *out;
    int sound = is_count("between", count, 4) && (values = array(&buffers, given[0], "values", 1, 4, 0)) != NULL &&
                (points = array(&buffers, given[1], "points", 1, 8, 0)) != NULL &&
                (heights = array(&buffers, given[2], "heights", 1, 8, 0)) != NULL &&
                (out = array(&buffers, given[3], "out", 1, 4, 1)) != NULL && long_enough(points, "points", 2) &&
                long_enough(heights, "heights", points->shape[0]) && long_enough(out, "out", values->shape[0]);
    const float *from = sound ? values->buf : NULL;
    Py_ssize_t left = 0;
    for (Py_ssize_t i = 0; sound && i < values->shape[0]; i++)
        ((float *)out->buf)[i] = height_at(from[i], points->buf, heights->buf, points->shape[0] - 1, &left);
    return finished(&buffers, sound);
}

PyDoc_STRVAR(places_doc, "places(values, out, /)\n--\n\n"
                         "Places from 1 by falling value; equal values share the better one, what is no number the last.");

static PyObject *places(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *values, *out;
    int sound = is_count("places", count, 2) && (values = array(&buffers, given[0], "values", 1, 8, 0)) != NULL &&
                (out = array(&buffers, given[1], "out", 1, 8, 1)) != NULL &&
                long_enough(out, "out", values->shape[0]) && rank_into(values->buf, values->shape[0], out->buf);
    return finished(&buffers, sound);
}

PyDoc_STRVAR(ordered_doc, "ordered(score, at, importance, created_at, rows, at_out, score_out, /)\n--\n\n"
                          "Candidates and their scores, best first; equal ones by importance, then newer, then row.");

static PyObject *ordered(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *score, *at, *importance, *created_at, *rows, *at_out, *score_out;
    Entry few[2 * FEW], *asked = NULL, *found = NULL;
    int sound = is_count("ordered", count, 7) && (score = array(&buffers, given[0], "score", 1, 8, 0)) != NULL &&
                (at = array(&buffers, given[1], "at", 1, 8, 0)) != NULL &&
                (importance = array(&buffers, given[2], "importance", 1, 8, 0)) != NULL &&
                (created_at = array(&buffers, given[3], "created_at", 1, 8, 0)) != NULL &&
                (rows = array(&buffers, given[4], "rows", 1, 8, 0)) != NULL &&
                (at_out = array(&buffers, given[5], "at_out", 1, 8, 1)) != NULL &&
                (score_out = array(&buffers, given[6], "score_out", 1, 8, 1)) != NULL &&
                long_enough(at, "at", score->shape[0]) && long_enough(at_out, "at_out", score->shape[0]) &&
                long_enough(score_out, "score_out", score->shape[0]) &&
                long_enough(importance, "importance", rows->shape[0]) &&
                long_enough(created_at, "created_at", rows->shape[0]) &&
                all_within(at->buf, score->shape[0], 0, rows->shape[0]);
    if (sound) {
        const Ties ties = {importance->buf, created_at->buf, rows->buf, at->buf};
        found = by_value(score->buf, score->shape[0], &ties, few, &asked);
        sound = found != NULL;
    }
    if (sound) {
        int64_t *places_of = at_out->buf;
        double *scores = score_out->buf;
        for (Py_ssize_t i = 0; i < score->shape[0]; i++) {
            places_of[i] = ((const int64_t *)at->buf)[found[i].at];
            scores[i] = found[i].value;
        }
    }
    PyMem_Free(asked);
    return finished(&buffers, sound);
}

/* Room for the signals and the places of candidates: two lines of each. */
typedef struct {
    double *signals[2];
    int64_t *places[2];
} Lines;

/* Lines of the arrays that they are told in; their buffers are held. */
static int lines_told(Buffers *buffers, PyObject *signals, PyObject *places, Py_ssize_t size, Lines *lines)
{
    Py_buffer *signal = array(buffers, signals, "signals", 2, 8, 1);
    Py_buffer *place = signal ? array(buffers, places, "places", 2, 8, 1) : NULL;
    if (place == NULL || !long_enough(signal, "signals", 2) || !long_enough(place, "places", 2) ||
        !told(signal->shape[1] >= size && place->shape[1] >= size, "signals, places: too short for the words"))
        return 0;
    for (int i = 0; i < 2; i++) {
        lines->signals[i] = (double *)((char *)signal->buf + i * signal->strides[0]);
        lines->places[i] = (int64_t *)((char *)place->buf + i * place->strides[0]);
    }
    return 1;
}

/* Lines that nobody else reads; the caller frees what was asked for, where they are not few. */
static int lines_apart(Py_ssize_t size, double *few, double **asked, Lines *lines)
{
    double *room = size <= FEW ? few : (*asked = PyMem_Malloc((size_t)size * 4 * sizeof *room));
    if (room == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        lines->signals[i] = room + i * size;
        lines->places[i] = (int64_t *)(room + (2 + i) * size);
    }
    return 1;
}

/* One score of two signals: their weighted mean, less those that are missing, or the shares that their places give. */
static void fuse(const Lines *lines, const double weights[2], double k, int known, Py_ssize_t size, double *score)
{
    double total = 0.0;
    int used[2];
    for (int i = 0; i < 2; i++) {
        used[i] = weights[i] > 0.0 && (k >= 0.0 || (known & (i ? PLACED : WORDED)));
        total += used[i] ? weights[i] : 0.0;
    }
    memset(score, 0, (size_t)size * sizeof *score);
    for (int i = 0; i < 2; i++)
        for (Py_ssize_t at = 0; used[i] && at < size; at++)
            score[at] += k >= 0.0 ? weights[i] / (k + (double)lines->places[i][at])
                                  : weights[i] / total * lines->signals[i][at];
}

/* Signals, places, order and scores; which signals there are, or -1 where there is no memory for it. The places of ties
   are those where the order is written. */
static int put_in_order(const double *words, const double *cosine, const Ties *ties, const double weights[2], double k,
                        int shown, Py_ssize_t size, Lines *lines, int64_t *at, double *score)
{
    Entry few[2 * FEW], *asked = NULL;
    int known = share_out(words, cosine, size, lines->signals[0], lines->signals[1]);
    if ((shown || k >= 0.0) && !(rank_into(words, size, lines->places[0]) && rank_into(cosine, size, lines->places[1])))
        return -1;
    for (Py_ssize_t i = 0; i < size; i++)
        at[i] = i;
    fuse(lines, weights, k, known, size, score);
    const Entry *found = by_value(score, size, ties, few, &asked);
    for (Py_ssize_t i = 0; found != NULL && i < size; i++) {
        at[i] = found[i].at;
        score[i] = found[i].value;
    }
    PyMem_Free(asked);
    return found == NULL ? -1 : known;
}

PyDoc_STRVAR(rank_doc,
             "rank(words, cosine, weights, k, importance, created_at, rows, signals, places, at, score, /)\n--\n\n"
             "Candidates by two signals: writes what `rates` writes, then which of them stand where, best first, and their\n"
             "scores. A score is the weighted mean of the signals, where `k` is below 0, or else the sum of weight / (k +\n"
             "place); `weights` are those of words and cosine. Ties are broken as by `ordered`; gives what `rates` gives.\n"
             "Where `signals` and `places` are both None, they are not told.");

static PyObject *rank(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers = {.count = 0};
    Py_buffer *words, *cosine, *importance, *created_at, *rows, *at_out, *score_out;
    double weights[2], k = -1.0, few_lines[4 * FEW], *more_lines = NULL;
    Lines lines;
    int known = 0, shown = count == 11 && (given[7] != Py_None || given[8] != Py_None);
    if (!is_count("rank", count, 11))
        return NULL;
    if (!PyTuple_Check(given[2])) {
        PyErr_SetString(PyExc_TypeError, "weights: not a tuple");
        return NULL;
    }
    int sound = PyArg_ParseTuple(given[2], "dd", &weights[0], &weights[1]);
    k = sound ? PyFloat_AsDouble(given[3]) : -1.0;
    sound = sound && !PyErr_Occurred() && (words = array(&buffers, given[0], "words", 1, 8, 0)) != NULL &&
            (cosine = array(&buffers, given[1], "cosine", 1, 8, 0)) != NULL &&
            (importance = array(&buffers, given[4], "importance", 1, 8, 0)) != NULL &&
            (created_at = array(&buffers, given[5], "created_at", 1, 8, 0)) != NULL &&
            (rows = array(&buffers, given[6], "rows", 1, 8, 0)) != NULL &&
            (at_out = array(&buffers, given[9], "at", 1, 8, 1)) != NULL &&
            (score_out = array(&buffers, given[10], "score", 1, 8, 1)) != NULL;
    Py_ssize_t size = sound ? words->shape[0] : 0;
    sound = sound && long_enough(cosine, "cosine", size) && long_enough(importance, "importance", size) &&
            long_enough(created_at, "created_at", size) && long_enough(rows, "rows", size) &&
            long_enough(at_out, "at", size) && long_enough(score_out, "score", size) &&
            (shown ? lines_told(&buffers, given[7], given[8], size, &lines)
                   : lines_apart(size, few_lines, &more_lines, &lines));
    if (sound) {
        const Ties ties = {importance->buf, created_at->buf, rows->buf, at_out->buf};
        known = put_in_order(words->buf, cosine->buf, &ties, weights, k, shown, size, &lines, at_out->buf, score_out->buf);
    }
    PyMem_Free(more_lines);
    release(&buffers);
    return sound && known >= 0 ? PyLong_FromLong(known) : NULL;
}

PyDoc_STRVAR(ranked_doc,
             "ranked(pool, weights, k, scale, out, /)\n--\n\n"
             "The same for a pool as a table gives it. `scale` is None, or (points, heights) as `between` takes them, and is\n"
             "that of the cosines. The lines of `out` are the cosines on that scale, which of the candidates stand where, as\n"
             "whole numbers, and their scores; then, unless these are not to be told, two of signals and two of places.");

#define POOL 7 /* lines of a pool */
#define TOLD 7 /* lines of what is told; without signals and places, three */

static PyObject *ranked(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    Buffers buffers;
    Py_buffer *pool, *out, *points = NULL, *heights = NULL;
    double weights[2], k, few_lines[4 * FEW], *more_lines = NULL, *line[POOL], *told_line[TOLD];
    Lines lines;
    buffers.count = 0;
    if (!is_count("ranked", count, 5))
        return NULL;
    if (!PyTuple_Check(given[1]) || (given[3] != Py_None && !PyTuple_Check(given[3]))) {
        PyErr_SetString(PyExc_TypeError, "weights, scale: not tuples");
        return NULL;
    }
    if (!PyArg_ParseTuple(given[1], "dd", &weights[0], &weights[1]) || ((k = PyFloat_AsDouble(given[2])), PyErr_Occurred()))
        return NULL;
    int known = -1;
    int sound = (pool = array(&buffers, given[0], "pool", 2, 8, 0)) != NULL &&
                (out = array(&buffers, given[4], "out", 2, 8, 1)) != NULL &&
                told(pool->shape[0] == POOL, "pool: another number of lines than a pool has") &&
                told(out->shape[0] == TOLD || out->shape[0] == 3, "out: neither three lines nor seven") &&
                told(out->shape[1] >= pool->shape[1], "out: too short for the pool");
    if (sound && given[3] != Py_None)
        sound = told(PyTuple_Size(given[3]) == 2, "scale: not points and heights") &&
                (points = array(&buffers, PyTuple_GetItem(given[3], 0), "points", 1, 8, 0)) != NULL &&
                (heights = array(&buffers, PyTuple_GetItem(given[3], 1), "heights", 1, 8, 0)) != NULL &&
                long_enough(points, "points", 2) && long_enough(heights, "heights", points->shape[0]);
    Py_ssize_t size = sound ? pool->shape[1] : 0, left = 0;
    int shown = sound && out->shape[0] == TOLD;
    for (int i = 0; sound && i < POOL; i++)
        line[i] = (double *)((char *)pool->buf + i * pool->strides[0]);
    for (int i = 0; sound && i < out->shape[0]; i++)
        told_line[i] = (double *)((char *)out->buf + i * out->strides[0]);
    if (shown)
        lines = (Lines){{told_line[3], told_line[4]}, {(int64_t *)told_line[5], (int64_t *)told_line[6]}};
    else if (sound)
        sound = lines_apart(size, few_lines, &more_lines, &lines);
    if (sound) {
        const Ties ties = {line[5], line[2], (int64_t *)line[0], (int64_t *)told_line[1]};
        for (Py_ssize_t i = 0; i < size; i++)
            told_line[0][i] = points == NULL ? line[6][i]
                                             : height_at(line[6][i], points->buf, heights->buf, points->shape[0] - 1, &left);
        known = put_in_order(line[1], told_line[0], &ties, weights, k, shown, size, &lines, (int64_t *)told_line[1],
                             told_line[2]);
    }
    PyMem_Free(more_lines);
    release(&buffers);
    return known >= 0 ? PyLong_FromLong(known) : NULL;
}

PyMethodDef ranking_methods[] = {
    METHOD(rates),  METHOD(stretch), METHOD(read_off), METHOD(between),
    METHOD(places), METHOD(ordered), METHOD(rank),     METHOD(ranked),
    {NULL, NULL, 0, NULL},
};
