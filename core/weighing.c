/* The numbers about a pair of texts that most pairs need. `semantics/features.py` says what they mean and does the same,
   to the last bit: sums are added in the same order, and as Python adds them. */

#include "native.h"
#include <math.h>

#define NUMBERS 61 /* as many as there are names */
#define MOST 512   /* words of a text; they are far fewer */

/* The fields of the named tuples that come from there, by place. */
enum { TEXT_CONTENT = 2, TEXT_TOLD = 3, TEXT_STEM_BAG = 5, TEXT_CAPITAL = 7, TEXT_QUESTION = 11 };
enum { SIDE_TEXT, SIDE_TOLD, SIDE_TOTAL, SIDE_PLACES = 4, SIDE_NAMES = 5, SIDE_INDEFINITE = 7, SIDE_NAMED, SIDE_PERSONAL,
       SIDE_HEDGES, SIDE_MARKERS, SIDE_UNIVERSAL };
enum { TOLD_STEMS = 2 };
enum { EXACT_A, EXACT_B, WEIGHTS_A, WEIGHTS_B, BEST_A, BEST_B, SWAPS, OPPOSITES };
enum { LEFT, RIGHT, COSINE, OPPOSED, EXCLUSIVE };
enum { BLOCKS, REPLACED, INSERTED, FIRST_PLAIN, FIRST_FLAG = 5, FUNCTION_ONLY = 11 };
/* Where the numbers stand. Those about negation, figures and prefixes are put in by others, where there are any. */
enum { SIMILARITY, COVER_LO, COVER_HI, SOFT_LO, SOFT_HI, JACCARD, LENGTH_RATIO, SAME_BAG, ORDER, OPPOSITE_COUNT = 17,
       OPPOSITE_SHARE, EXCLUSIVE_SWAP, SWAP_COUNT = 26, SWAP_SHARE, SWAP_MEAN, SWAP_MAX, SWAP_MIN, SWAP_NAMES, SWAP_WEIGHT,
       EXTRA_LO, EXTRA_HI, NAMES_SHARED, NAMES_LO, NAMES_HI, EDITS, QUESTIONS = 50, QUESTION_ONE, INDEFINITE, NAMED_SUBJECT,
       SUBJECT_SAME, PERSONAL, HEDGED, MARKED, UNIVERSAL, WEAKEST_LO, WEAKEST_HI };

/* A sum as Python's own: since 3.12 it keeps what is rounded off. */
typedef struct {
    double total, rounded;
} Sum;

static inline void add(Sum *sum, double value)
{
    double total = sum->total + value;
    if (Py_Version >= 0x030C0000)
        sum->rounded += fabs(sum->total) >= fabs(value) ? (sum->total - total) + value : (value - total) + sum->total;
    sum->total = total;
}

static inline double summed(const Sum *sum)
{
    return sum->rounded != 0 && isfinite(sum->rounded) ? sum->total + sum->rounded : sum->total;
}

/* One text of a pair, as far as it is asked for. */
typedef struct {
    PyObject *text, *places, *names, *stem_bag, *told, *content, *capital;
    Py_ssize_t count; /* words that carry meaning */
    double total;
    const double *weights, *best;
    const uint8_t *exact;
} Side;

static double smaller(double one, double other)
{
    return other < one ? other : one;
}

static double larger(double one, double other)
{
    return other > one ? other : one;
}

/* An item of a tuple, -1 after an error. */
static double number_at(PyObject *tuple, Py_ssize_t at)
{
    PyObject *found = PyTuple_GetItem(tuple, at);
    return found == NULL ? -1 : PyFloat_AsDouble(found);
}

static int flag_at(PyObject *tuple, Py_ssize_t at)
{
    PyObject *found = PyTuple_GetItem(tuple, at);
    return found == NULL ? -1 : PyObject_IsTrue(found);
}

static int doubles(PyObject *from, double *out, Py_ssize_t count)
{
    int tuple = PyTuple_Check(from);
    if (count > MOST || (tuple ? PyTuple_Size(from) : PyList_Check(from) ? PyList_Size(from) : -1) != count) {
        PyErr_SetString(PyExc_ValueError, "features: not as many numbers as words, or too many");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyFloat_AsDouble(tuple ? PyTuple_GetItem(from, i) : PyList_GetItem(from, i));
        if (out[i] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

static int flags(PyObject *from, uint8_t *out, Py_ssize_t count)
{
    if (!PyTuple_Check(from) || PyTuple_Size(from) != count || count > MOST) {
        PyErr_SetString(PyExc_ValueError, "features: not as many flags as words, or too many");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        out[i] = PyTuple_GetItem(from, i) == Py_True;
    return 1;
}

static int side_of(PyObject *given, Side *side)
{
    memset(side, 0, sizeof *side);
    side->text = PyTuple_GetItem(given, SIDE_TEXT);
    side->places = side->text ? PyTuple_GetItem(given, SIDE_PLACES) : NULL;
    side->names = side->places ? PyTuple_GetItem(given, SIDE_NAMES) : NULL;
    side->content = side->names ? PyTuple_GetItem(side->text, TEXT_CONTENT) : NULL;
    side->told = side->content ? PyTuple_GetItem(side->text, TEXT_TOLD) : NULL;
    side->stem_bag = side->told ? PyTuple_GetItem(side->text, TEXT_STEM_BAG) : NULL;
    side->capital = side->stem_bag ? PyTuple_GetItem(side->text, TEXT_CAPITAL) : NULL;
    if (side->capital == NULL)
        return 0;
    if (!PyTuple_Check(side->told) || !PyTuple_Check(side->content) || !PyTuple_Check(side->capital) ||
        !PyDict_Check(side->places) || !PyAnySet_Check(side->names) || !PyAnySet_Check(side->stem_bag)) {
        PyErr_SetString(PyExc_TypeError, "features: not two sides");
        return 0;
    }
    side->count = PyTuple_Size(side->told);
    side->total = number_at(given, SIDE_TOTAL);
    return !PyErr_Occurred();
}

static double cover(const Side *side)
{
    Sum sum = {0, 0};
    for (Py_ssize_t i = 0; i < side->count; i++)
        if (side->exact[i])
            add(&sum, side->weights[i]);
    return side->total != 0 ? summed(&sum) / side->total : 0;
}

static double softly(const Side *side)
{
    Sum sum = {0, 0};
    for (Py_ssize_t i = 0; i < side->count; i++)
        add(&sum, side->best[i] * side->weights[i]);
    return side->total != 0 ? summed(&sum) / side->total : 0;
}

static double weakest(const Side *side)
{
    double least = side->count ? side->best[0] : 0;
    for (Py_ssize_t i = 1; i < side->count; i++)
        least = smaller(least, side->best[i]);
    return least;
}

/* Whether two texts have the same telling stems, each as often; -1 after an error. */
static int same_bag(const Side *one, const Side *other, PyObject *told_one, PyObject *told_other)
{
    if (one->count != other->count)
        return 0;
    PyObject *mine = PyTuple_GetItem(told_one, TOLD_STEMS), *theirs = mine ? PyTuple_GetItem(told_other, TOLD_STEMS) : NULL;
    int same = theirs ? PyObject_RichCompareBool(mine, theirs, Py_EQ) : -1;
    if (same != 1)
        return same;
    PyObject *here = PySequence_List(one->told), *there = here ? PySequence_List(other->told) : NULL;
    same = there == NULL || PyList_Sort(here) < 0 || PyList_Sort(there) < 0 ? -1
                                                                            : PyObject_RichCompareBool(here, there, Py_EQ);
    Py_XDECREF(here);
    Py_XDECREF(there);
    return same;
}

typedef struct {
    long here, there;
} Place;

static double rising(Place *places, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++) {
        Place moved = places[i];
        Py_ssize_t at = i;
        for (; at > 0 && (places[at - 1].here > moved.here ||
                          (places[at - 1].here == moved.here && places[at - 1].there > moved.there)); at--)
            places[at] = places[at - 1];
        places[at] = moved;
    }
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 1; i < count; i++)
        found += places[i - 1].there <= places[i].there || places[i - 1].here == places[i].here;
    return (double)found / (double)(count - 1);
}

/* The share of shared words that stand in the same order in both texts, seen from both; -1 after an error. */
static double order(const Side *one, const Side *other)
{
    Place shared[MOST], turned[MOST];
    PyObject *stem, *place;
    Py_ssize_t at = 0, count = 0;
    while (PyDict_Next(one->places, &at, &stem, &place)) {
        PyObject *there = PyDict_GetItemWithError(other->places, stem);
        if (there == NULL && PyErr_Occurred())
            return -1;
        if (there == NULL)
            continue;
        if (count == MOST) {
            PyErr_SetString(PyExc_ValueError, "features: too many words");
            return -1;
        }
        shared[count].here = turned[count].there = PyLong_AsLong(place);
        shared[count].there = turned[count].here = PyLong_AsLong(there);
        count++;
    }
    if (PyErr_Occurred())
        return -1;
    if (count < 2)
        return 1;
    double mine = rising(shared, count);
    return (mine + rising(turned, count)) / 2;
}

/* A word that stands where another one does. */
typedef struct {
    Py_ssize_t left, right;
    double cosine;
} Swap;

static double unpaired(const Side *side, const uint8_t *partnered, double total)
{
    Sum sum = {0, 0};
    for (Py_ssize_t i = 0; i < side->count; i++)
        if (!side->exact[i] && !partnered[i])
            add(&sum, side->weights[i]);
    return summed(&sum) / total;
}

/* Whether a word that carries meaning has a capital; -1 after an error. */
static int capital(const Side *side, Py_ssize_t at)
{
    PyObject *place = PyTuple_GetItem(side->content, at);
    Py_ssize_t where = place ? PyLong_AsSsize_t(place) : -1;
    return PyErr_Occurred() ? -1 : flag_at(side->capital, where);
}

static int swaps_of(const Side *one, const Side *other, PyObject *swaps, double *out)
{
    uint8_t left[MOST] = {0}, right[MOST] = {0};
    Swap real[MOST];
    Py_ssize_t count = PyList_Check(swaps) ? PyList_Size(swaps) : -1, found = 0;
    Sum all = {0, 0}, against = {0, 0}, share = {0, 0}, near = {0, 0}, weight = {0, 0};
    int exclusive = 0, names = 0;
    if (count < 0 || count > MOST) {
        PyErr_SetString(PyExc_ValueError, "features: no list of swaps, or too many");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *swap = PyList_GetItem(swaps, i), *l = PyTuple_GetItem(swap, LEFT), *r = l ? PyTuple_GetItem(swap, RIGHT) : NULL;
        Swap here = {l ? PyLong_AsSsize_t(l) : -1, r ? PyLong_AsSsize_t(r) : -1, r ? number_at(swap, COSINE) : 0};
        int opposed = r ? flag_at(swap, OPPOSED) : -1, closed = r ? flag_at(swap, EXCLUSIVE) : -1;
        if (PyErr_Occurred())
            return 0;
        if (here.left < 0 || here.left >= one->count || here.right < 0 || here.right >= other->count) {
            PyErr_SetString(PyExc_IndexError, "features: a swap of words that are not there");
            return 0;
        }
        double both = one->weights[here.left] + other->weights[here.right];
        add(&all, both);
        if (opposed)
            add(&against, both);
        exclusive |= closed;
        if (here.cosine > 0.1) {
            left[here.left] = right[here.right] = 1;
            real[found++] = here;
        }
    }
    out[OPPOSITE_SHARE] = summed(&all) != 0 ? summed(&against) / summed(&all) : 0;
    out[EXCLUSIVE_SWAP] = exclusive;
    double total_one = one->total != 0 ? one->total : 1, total_other = other->total != 0 ? other->total : 1;
    double extra_one = unpaired(one, left, total_one), extra_other = unpaired(other, right, total_other);
    out[EXTRA_LO] = smaller(extra_one, extra_other);
    out[EXTRA_HI] = larger(extra_one, extra_other);
    out[SWAP_MEAN] = out[SWAP_MAX] = out[SWAP_MIN] = 1;
    if (!found)
        return 1;
    out[SWAP_MAX] = out[SWAP_MIN] = real[0].cosine;
    for (Py_ssize_t i = 0; i < found; i++) {
        double mine = one->weights[real[i].left], theirs = other->weights[real[i].right];
        int here = capital(one, real[i].left), there = here > 0 ? capital(other, real[i].right) : here;
        if (there < 0)
            return 0;
        names += there;
        add(&share, mine / total_one + theirs / total_other);
        add(&near, real[i].cosine);
        add(&weight, smaller(mine, theirs));
        out[SWAP_MAX] = larger(out[SWAP_MAX], real[i].cosine);
        out[SWAP_MIN] = smaller(out[SWAP_MIN], real[i].cosine);
    }
    out[SWAP_COUNT] = (double)(found < 6 ? found : 6);
    out[SWAP_SHARE] = summed(&share) / 2;
    out[SWAP_MEAN] = summed(&near) / (double)found;
    out[SWAP_NAMES] = names < 3 ? names : 3;
    out[SWAP_WEIGHT] = summed(&weight) / (double)found;
    return 1;
}

/* How many of the names of a text are in a set; -1 after an error. */
static Py_ssize_t among(PyObject *names, PyObject *set)
{
    PyObject *each = PyObject_GetIter(names), *name;
    Py_ssize_t found = 0;
    while (each != NULL && (name = PyIter_Next(each)) != NULL) {
        found += PySet_Contains(set, name) == 1;
        Py_DECREF(name);
    }
    Py_XDECREF(each);
    return PyErr_Occurred() ? -1 : found;
}

static int names_of(const Side *one, const Side *other, double *out)
{
    Py_ssize_t mine = PySet_Size(one->names), theirs = PySet_Size(other->names);
    if (!mine && !theirs)
        return 1;
    Py_ssize_t here = among(one->names, other->stem_bag), there = among(other->names, one->stem_bag);
    Py_ssize_t shared = among(one->names, other->names);
    if (PyErr_Occurred())
        return 0;
    Py_ssize_t less = mine - here < theirs - there ? mine - here : theirs - there;
    Py_ssize_t more = mine - here > theirs - there ? mine - here : theirs - there;
    out[NAMES_SHARED] = (double)(shared < 4 ? shared : 4);
    out[NAMES_LO] = (double)(less < 4 ? less : 4);
    out[NAMES_HI] = (double)(more < 5 ? more : 5);
    return 1;
}

static int edits_of(PyObject *edits, double *out)
{
    static const long most[] = {12, 8, 8};
    for (int i = BLOCKS; i <= INSERTED; i++) {
        PyObject *given = PyTuple_GetItem(edits, i);
        long count = given ? PyLong_AsLong(given) : -1;
        out[EDITS + i] = (double)(count < most[i] ? count : most[i]);
    }
    for (int i = FIRST_PLAIN; i < FIRST_FLAG; i++)
        out[EDITS + i] = PyErr_Occurred() ? 0 : number_at(edits, i);
    for (int i = FIRST_FLAG; i <= FUNCTION_ONLY; i++)
        out[EDITS + i] = PyErr_Occurred() ? 0 : flag_at(edits, i);
    return !PyErr_Occurred();
}

static int differs(PyObject *one, PyObject *other, Py_ssize_t at)
{
    PyObject *mine = PyTuple_GetItem(one, at), *theirs = mine ? PyTuple_GetItem(other, at) : NULL;
    return theirs == NULL ? -1 : mine == theirs ? 0 : PyObject_RichCompareBool(mine, theirs, Py_NE);
}

static int shape_of(PyObject *given, PyObject *beside, const Side *one, const Side *other, double *out)
{
    int here = flag_at(one->text, TEXT_QUESTION), there = flag_at(other->text, TEXT_QUESTION);
    int same = one->count == other->count; /* where one of them has no words */
    if (one->count && other->count)
        same = PyObject_RichCompareBool(PyTuple_GetItem(one->told, 0), PyTuple_GetItem(other->told, 0), Py_EQ);
    out[QUESTIONS] = here && there;
    out[QUESTION_ONE] = here != there;
    out[SUBJECT_SAME] = same;
    out[INDEFINITE] = flag_at(given, SIDE_INDEFINITE) + flag_at(beside, SIDE_INDEFINITE);
    out[NAMED_SUBJECT] = flag_at(given, SIDE_NAMED) + flag_at(beside, SIDE_NAMED);
    out[PERSONAL] = flag_at(given, SIDE_PERSONAL) + flag_at(beside, SIDE_PERSONAL);
    out[HEDGED] = differs(given, beside, SIDE_HEDGES);
    out[MARKED] = differs(given, beside, SIDE_MARKERS);
    out[UNIVERSAL] = differs(given, beside, SIDE_UNIVERSAL);
    return !PyErr_Occurred();
}

static int all_numbers(PyObject *const *given, double *out)
{
    Side one, other;
    PyObject *aligned = given[3];
    double weights[2][MOST], best[2][MOST];
    uint8_t exact[2][MOST];
    if (!side_of(given[0], &one) || !side_of(given[1], &other))
        return 0;
    PyObject *parts[8];
    for (int i = 0; i < 8; i++)
        if ((parts[i] = PyTuple_GetItem(aligned, i)) == NULL)
            return 0;
    if (!flags(parts[EXACT_A], exact[0], one.count) || !flags(parts[EXACT_B], exact[1], other.count) ||
        !doubles(parts[WEIGHTS_A], weights[0], one.count) || !doubles(parts[WEIGHTS_B], weights[1], other.count) ||
        !doubles(parts[BEST_A], best[0], one.count) || !doubles(parts[BEST_B], best[1], other.count))
        return 0;
    one.exact = exact[0], other.exact = exact[1];
    one.weights = weights[0], other.weights = weights[1];
    one.best = best[0], other.best = best[1];
    double here = cover(&one), there = cover(&other), total = one.total + other.total;
    out[SIMILARITY] = PyFloat_AsDouble(given[2]);
    out[COVER_LO] = smaller(here, there);
    out[COVER_HI] = larger(here, there);
    double shared = here * one.total + there * other.total;
    out[JACCARD] = total != 0 ? shared / total : 0;
    here = softly(&one), there = softly(&other);
    out[SOFT_LO] = smaller(here, there);
    out[SOFT_HI] = larger(here, there);
    Py_ssize_t less = one.count < other.count ? one.count : other.count, more = one.count + other.count - less;
    out[LENGTH_RATIO] = (double)less / (double)(more ? more : 1);
    PyObject *told_one = PyTuple_GetItem(given[0], SIDE_TOLD), *told_other = PyTuple_GetItem(given[1], SIDE_TOLD);
    out[SAME_BAG] = told_one && told_other ? same_bag(&one, &other, told_one, told_other) : -1;
    out[ORDER] = PyErr_Occurred() ? -1 : order(&one, &other);
    if (PyErr_Occurred())
        return 0;
    Py_ssize_t opposites = PyList_Check(parts[OPPOSITES]) ? PyList_Size(parts[OPPOSITES]) : 0;
    out[OPPOSITE_COUNT] = (double)(opposites < 3 ? opposites : 3);
    here = weakest(&one), there = weakest(&other);
    out[WEAKEST_LO] = smaller(here, there);
    out[WEAKEST_HI] = larger(here, there);
    return swaps_of(&one, &other, parts[SWAPS], out) && names_of(&one, &other, out) && edits_of(given[4], out) &&
           shape_of(given[0], given[1], &one, &other, out);
}

PyDoc_STRVAR(features_doc, "features(one, other, similarity, alignment, edits, /)\n--\n\n"
                           "The row of numbers about a pair, with zeros for what is seldom there: negation, figures, prefixes.");

static PyObject *features(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("features", count, 5))
        return NULL;
    for (int i = 0; i < 5; i++)
        if (i != 2 && !PyTuple_Check(given[i])) {
            PyErr_SetString(PyExc_TypeError, "features: not two sides, an alignment and edits");
            return NULL;
        }
    double numbers[NUMBERS] = {0};
    if (!all_numbers(given, numbers))
        return NULL;
    PyObject *row = PyList_New(NUMBERS);
    for (Py_ssize_t i = 0; row != NULL && i < NUMBERS; i++) {
        PyObject *number = PyFloat_FromDouble(numbers[i]);
        if (number == NULL || PyList_SetItem(row, i, number) < 0)
            Py_CLEAR(row);
    }
    return row;
}

PyMethodDef weighing_methods[] = {
    METHOD(features),
    {NULL, NULL, 0, NULL},
};
