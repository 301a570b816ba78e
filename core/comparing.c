/* The inner loops of comparing many pairs of texts: which words answer to each other, where two texts part, and what
   the trees make of it. `semantics` says what they mean and does the same with numpy and `difflib`. */

#include "native.h"

#define LONGEST 256 /* words of a text */

/* Where the words of two texts stand: begin and end of one, begin and end of the other. */
typedef struct {
    int64_t from, to, other_from, other_to;
} Texts;

static int within(const Py_buffer *pairs, Py_ssize_t words)
{
    const Texts *texts = pairs->buf;
    int sound = pairs->shape[1] == 4 && (pairs->shape[0] < 2 || pairs->strides[0] == (Py_ssize_t)sizeof *texts);
    for (Py_ssize_t i = 0; sound && i < pairs->shape[0]; i++, texts++)
        sound = 0 <= texts->from && texts->from <= texts->to && texts->to <= words && 0 <= texts->other_from &&
                texts->other_from <= texts->other_to && texts->other_to <= words &&
                texts->to - texts->from <= LONGEST && texts->other_to - texts->other_from <= LONGEST;
    if (!sound)
        PyErr_SetString(PyExc_ValueError, "pairs: a text that is not there, or too long");
    return sound;
}

static int enough(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments where %zd are needed", count, wanted);
    return 0;
}

static float cosine(const float *one, const float *other, Py_ssize_t dim)
{
    float lanes[16] = {0}, sum = 0;
    Py_ssize_t d = 0;
    for (; d + 16 <= dim; d += 16)
        for (int lane = 0; lane < 16; lane++)
            lanes[lane] += one[d + lane] * other[d + lane];
    for (; d < dim; d++)
        sum += one[d] * other[d];
    for (int half = 8; half; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return sum + lanes[0];
}

/* The words of all texts: their vectors, and whether the other text has the same. */
typedef struct {
    const float *vectors;
    Py_ssize_t dim;
    const int64_t *places;
    const uint8_t *exact;
    float *nearest;   /* to any word of the other text; only of words that are not exact */
    int64_t *partner; /* which word of the other text stands in its place; -1: none */
    float *closeness; /* to that */
} Spoken;

static void meet(const Spoken *all, const Texts *texts, float *cosines)
{
    int64_t count = texts->to - texts->from, others = texts->other_to - texts->other_from;
    int64_t best_here[LONGEST], best_there[LONGEST]; /* among the words without a counterpart */
    for (int64_t i = 0; i < count; i++) {
        all->nearest[texts->from + i] = 0;
        all->partner[texts->from + i] = -1;
        best_here[i] = -1;
    }
    for (int64_t j = 0; j < others; j++) {
        all->nearest[texts->other_from + j] = 0;
        all->partner[texts->other_from + j] = -1;
        best_there[j] = -1;
    }
    for (int64_t i = 0; i < count; i++) {
        const float *here = all->vectors + all->places[texts->from + i] * all->dim;
        int free_here = !all->exact[texts->from + i];
        for (int64_t j = 0; j < others; j++) {
            int free_there = !all->exact[texts->other_from + j];
            if (!free_here && !free_there)
                continue;
            float *mine = all->nearest + texts->from + i, *theirs = all->nearest + texts->other_from + j;
            float found = cosine(here, all->vectors + all->places[texts->other_from + j] * all->dim, all->dim);
            cosines[i * others + j] = found;
            if (free_here && found > *mine)
                *mine = found;
            if (free_there && found > *theirs)
                *theirs = found;
            if (free_here && free_there) {
                if (best_here[i] < 0 || found > cosines[i * others + best_here[i]])
                    best_here[i] = j;
                if (best_there[j] < 0 || found > cosines[best_there[j] * others + j])
                    best_there[j] = i;
            }
        }
    }
    for (int64_t i = 0; i < count; i++)
        if (best_here[i] >= 0 && best_there[best_here[i]] == i) {
            all->partner[texts->from + i] = best_here[i];
            all->closeness[texts->from + i] = cosines[i * others + best_here[i]];
        }
}

PyDoc_STRVAR(align_doc, "align(vectors, places, exact, pairs, nearest, partner, closeness, /)\n--\n\n"
                        "For every word of some texts that the other text lacks: how near the nearest one there is, and which\n"
                        "of those that are left over there stands in its place.");

static PyObject *align(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!enough(count, 7))
        return NULL;
    Buffers buffers = {.count = 0};
    float *cosines = NULL;
    int done = 0;
    Py_buffer *vectors = array(&buffers, given[0], "vectors", 2, 4, 0);
    Py_buffer *places = vectors ? array(&buffers, given[1], "places", 1, 8, 0) : NULL;
    Py_buffer *exact = places ? array(&buffers, given[2], "exact", 1, 1, 0) : NULL;
    Py_buffer *pairs = exact ? array(&buffers, given[3], "pairs", 2, 8, 0) : NULL;
    Py_buffer *nearest = pairs ? array(&buffers, given[4], "nearest", 1, 4, 1) : NULL;
    Py_buffer *partner = nearest ? array(&buffers, given[5], "partner", 1, 8, 1) : NULL;
    Py_buffer *closeness = partner ? array(&buffers, given[6], "closeness", 1, 4, 1) : NULL;
    Py_ssize_t words = closeness ? places->shape[0] : 0;
    if (closeness == NULL || !long_enough(exact, "exact", words) || !long_enough(nearest, "nearest", words) ||
        !long_enough(partner, "partner", words) || !long_enough(closeness, "closeness", words) ||
        !within(pairs, words))
        goto end;
    if (vectors->shape[0] > 1 && vectors->strides[0] != vectors->shape[1] * 4) {
        PyErr_SetString(PyExc_ValueError, "vectors: not all side by side");
        goto end;
    }
    for (Py_ssize_t i = 0; i < words; i++) {
        int64_t at = ((const int64_t *)places->buf)[i];
        if (at < 0 || at >= vectors->shape[0]) {
            PyErr_Format(PyExc_IndexError, "places: no row %zd among %zd", (Py_ssize_t)at, vectors->shape[0]);
            goto end;
        }
    }
    cosines = PyMem_Malloc(LONGEST * LONGEST * sizeof *cosines);
    if (cosines == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Spoken all = {vectors->buf, vectors->shape[1], places->buf, exact->buf, nearest->buf, partner->buf, closeness->buf};
    const Texts *texts = pairs->buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < pairs->shape[0]; i++)
        meet(&all, texts + i, cosines);
    Py_END_ALLOW_THREADS
    done = 1;
end:
    PyMem_Free(cosines);
    release(&buffers);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

/* Some words of one text, and some of another. */
typedef struct {
    int from, to, other_from, other_to;
} Stretch;

/* The longest run of words that two stretches share; of several the first, as `difflib` has it. */
static Stretch longest(const int64_t *one, const int64_t *other, Stretch in)
{
    int before[LONGEST + 1], here[LONGEST + 1], best = 0;
    Stretch found = {in.from, in.from, in.other_from, in.other_from};
    memset(before, 0, sizeof before);
    here[in.other_from] = 0;
    for (int i = in.from; i < in.to; i++) {
        for (int j = in.other_from; j < in.other_to; j++) {
            int size = one[i] == other[j] ? before[j] + 1 : 0;
            here[j + 1] = size;
            if (size > best) {
                best = size;
                found = (Stretch){i - size + 1, i + 1, j - size + 1, j + 1};
            }
        }
        memcpy(before + in.other_from, here + in.other_from, (size_t)(in.other_to - in.other_from + 1) * sizeof *here);
    }
    return found;
}

/* Where two texts part, in order; how many places that are. */
static Py_ssize_t part(const int64_t *one, int count, const int64_t *other, int others, int64_t (*out)[4])
{
    Stretch waiting[LONGEST + 2];
    int left = 1;
    Py_ssize_t found = 0;
    waiting[0] = (Stretch){0, count, 0, others};
    while (left) {
        Stretch in = waiting[--left];
        Stretch same = in.from < in.to && in.other_from < in.other_to ? longest(one, other, in)
                                                                      : (Stretch){in.from, in.from, 0, 0};
        if (same.from < same.to) { /* what comes before it is looked at first */
            waiting[left++] = (Stretch){same.to, in.to, same.other_to, in.other_to};
            waiting[left++] = (Stretch){in.from, same.from, in.other_from, same.other_from};
        } else if (in.from < in.to || in.other_from < in.other_to) {
            out[found][0] = in.from;
            out[found][1] = in.to;
            out[found][2] = in.other_from;
            out[found++][3] = in.other_to;
        }
    }
    return found;
}

PyDoc_STRVAR(differ_doc, "differ(words, pairs, out, found, /)\n--\n\n"
                         "Where two texts part, as `difflib` has it: begin and end in one and in the other; how often for each\n"
                         "pair.");

static PyObject *differ(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!enough(count, 4))
        return NULL;
    Buffers buffers = {.count = 0};
    int done = 0;
    Py_buffer *words = array(&buffers, given[0], "words", 1, 8, 0);
    Py_buffer *pairs = words ? array(&buffers, given[1], "pairs", 2, 8, 0) : NULL;
    Py_buffer *out = pairs ? array(&buffers, given[2], "out", 2, 8, 1) : NULL;
    Py_buffer *found = out ? array(&buffers, given[3], "found", 1, 8, 1) : NULL;
    if (found == NULL || !within(pairs, words->shape[0]) || !long_enough(found, "found", pairs->shape[0]))
        goto end;
    const Texts *texts = pairs->buf;
    Py_ssize_t needed = 0;
    for (Py_ssize_t i = 0; i < pairs->shape[0]; i++)
        needed += texts[i].to - texts[i].from + texts[i].other_to - texts[i].other_from;
    if (!long_enough(out, "out", needed))
        goto end;
    if (out->shape[1] != 4 || (out->shape[0] > 1 && out->strides[0] != 32)) {
        PyErr_SetString(PyExc_ValueError, "out: not rows of four side by side");
        goto end;
    }
    const int64_t *word = words->buf;
    int64_t (*place)[4] = out->buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < pairs->shape[0]; i++, texts++) {
        Py_ssize_t here = part(word + texts->from, (int)(texts->to - texts->from), word + texts->other_from,
                               (int)(texts->other_to - texts->other_from), place);
        ((int64_t *)found->buf)[i] = here;
        place += here;
    }
    Py_END_ALLOW_THREADS
    done = 1;
end:
    release(&buffers);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(descend_doc, "descend(values, feature, threshold, ends, tree, stays, leaves, out, /)\n--\n\n"
                          "For every row of values the leaf that each tree comes to. A condition that is met rules out leaves of\n"
                          "some trees: `tree` and `stays`, one bit per leaf, up to `ends` of the condition. The first leaf that is\n"
                          "left is the one. Conditions on one feature follow each other, the least threshold first.");

static PyObject *descend(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!enough(count, 8))
        return NULL;
    Buffers buffers = {.count = 0};
    uint64_t *left = NULL;
    int done = 0;
    Py_buffer *values = array(&buffers, given[0], "values", 2, 4, 0);
    Py_buffer *features = values ? array(&buffers, given[1], "feature", 1, 8, 0) : NULL;
    Py_buffer *thresholds = features ? array(&buffers, given[2], "threshold", 1, 4, 0) : NULL;
    Py_buffer *ends = thresholds ? array(&buffers, given[3], "ends", 1, 8, 0) : NULL;
    Py_buffer *whose = ends ? array(&buffers, given[4], "tree", 1, 2, 0) : NULL;
    Py_buffer *masks = whose ? array(&buffers, given[5], "stays", 1, 8, 0) : NULL;
    Py_buffer *leaves = masks ? array(&buffers, given[6], "leaves", 2, 4, 0) : NULL;
    Py_buffer *out = leaves ? array(&buffers, given[7], "out", 2, 4, 1) : NULL;
    if (out == NULL || !long_enough(out, "out", values->shape[0]))
        goto end;
    Py_ssize_t conditions = features->shape[0], nodes = whose->shape[0], trees = leaves->shape[0];
    const int64_t *feature = features->buf, *until = ends->buf;
    const uint16_t *tree = whose->buf;
    int sound = leaves->shape[1] == 64 && out->shape[1] == trees && masks->shape[0] == nodes &&
                thresholds->shape[0] == conditions && ends->shape[0] == conditions;
    for (Py_ssize_t i = 0; sound && i < conditions; i++)
        sound = 0 <= feature[i] && feature[i] < values->shape[1] && (i ? until[i - 1] : 0) <= until[i] &&
                until[i] <= nodes;
    for (Py_ssize_t i = 0; sound && i < nodes; i++)
        sound = tree[i] < trees;
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "descend: these are no trees, or not for these values");
        goto end;
    }
    left = PyMem_Malloc((size_t)(trees ? trees : 1) * sizeof *left);
    if (left == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    const float *threshold = thresholds->buf;
    const uint64_t *stays = masks->buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t row = 0; row < values->shape[0]; row++) {
        const float *value = (const float *)((char *)values->buf + row * values->strides[0]);
        float *reached = (float *)((char *)out->buf + row * out->strides[0]);
        memset(left, 0xff, (size_t)trees * sizeof *left);
        for (Py_ssize_t i = 0; i < conditions;) {
            int64_t asked = feature[i];
            float here = value[asked];
            for (; i < conditions && feature[i] == asked && here > threshold[i]; i++)
                for (int64_t node = i ? until[i - 1] : 0; node < until[i]; node++)
                    left[tree[node]] &= stays[node];
            while (i < conditions && feature[i] == asked)
                i++;
        }
        for (Py_ssize_t at = 0; at < trees; at++) {
            const float *mine = (const float *)((char *)leaves->buf + at * leaves->strides[0]);
            reached[at] = mine[left[at] ? first_one(left[at]) : 63];
        }
    }
    Py_END_ALLOW_THREADS
    done = 1;
end:
    PyMem_Free(left);
    release(&buffers);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef comparing_methods[] = {
    METHOD(align),
    METHOD(differ),
    METHOD(descend),
    {NULL, NULL, 0, NULL},
};
