/* Which texts share many of their words: a few among one another, in one pass over all of them, or others with one. */

#include "native.h"

#define MOST_TEXTS 32 /* as many as a mask has bits */
#define MOST_BYTES (1 << 14) /* of all texts; words that meet in one place of the table cost little among so few */

typedef struct {
    uint64_t hash;
    uint32_t start, length;
    uint32_t held; /* by which texts, a bit each; 0 where the place is free */
} Word;

/* What str.split() takes for a blank, as far as it is ASCII; without a branch, so that many are looked at together. */
static inline int is_blank(uint8_t c)
{
    return (c == ' ') | ((uint8_t)(c - 9) < 5) | ((uint8_t)(c - 28) < 4);
}

/* Where a word stands in the table, or a free place for it; there always is one. */
static Word *place_of(Word *table, uint32_t places, const char *bytes, uint64_t hash, uint32_t start, uint32_t length)
{
    uint32_t at = (uint32_t)(hash ^ (hash >> 32)) & (places - 1);
    while (table[at].held && !(table[at].hash == hash && table[at].length == length &&
                               memcmp(bytes + table[at].start, bytes + start, length) == 0))
        at = (at + 1) & (places - 1);
    return &table[at];
}

/* Capital letters as small ones. */
static void lower(char *bytes, uint32_t size)
{
    for (uint32_t at = 0; at < size; at++)
        bytes[at] = (char)(bytes[at] + ((uint8_t)(bytes[at] - 'A') < 26) * ('a' - 'A'));
}

/* Put the words of one text, which are in small letters, into the table; how many different ones it has. */
static uint32_t take_in(Word *table, uint32_t places, const char *bytes, uint32_t from, uint32_t to, uint32_t bit)
{
    uint32_t different = 0;
    for (uint32_t at = from; at < to;) {
        if (is_blank((uint8_t)bytes[at])) {
            at++;
            continue;
        }
        uint64_t hash = 14695981039346656037ull;
        uint32_t start = at;
        for (; at < to && (bytes[at] > ' ' || !is_blank((uint8_t)bytes[at])); at++)
            hash = (hash ^ (uint8_t)bytes[at]) * 1099511628211ull;
        Word *word = place_of(table, places, bytes, hash, start, at - start);
        if (!word->held) {
            word->hash = hash;
            word->start = start;
            word->length = at - start;
        }
        different += !(word->held & bit);
        word->held |= bit;
    }
    return different;
}

/* Copy the texts one after another; 0 where one is not plain ASCII or there is too much of them, -1 after an error. */
static int copy_texts(PyObject *texts, Py_ssize_t count, char *bytes, uint32_t *ends)
{
    uint32_t end = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *text = PyList_GetItem(texts, i);
        Py_ssize_t size = 0;
        const char *from = text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
        if (from == NULL) {
            if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) { /* half a pair */
                PyErr_Clear();
                return 0;
            }
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "texts: not a list of texts");
            return -1;
        }
        if (size != PyUnicode_GetLength(text) || size > (Py_ssize_t)(MOST_BYTES - end))
            return 0;
        memcpy(bytes + end, from, (size_t)size);
        end += (uint32_t)size;
        ends[i] = end;
    }
    return 1;
}

/* Places of a table with some to spare for the words of the texts: there are as many as words begin. */
static uint32_t room_for(const char *bytes, const uint32_t *ends, Py_ssize_t count)
{
    uint32_t words = (uint32_t)count, places = 16;
    for (uint32_t at = 1; count && at < ends[count - 1]; at++)
        words += is_blank((uint8_t)bytes[at - 1]) & !is_blank((uint8_t)bytes[at]);
    while (places <= 2 * words)
        places *= 2;
    return places;
}

static PyObject *pairs_of(Word *table, uint32_t places, const uint32_t *sizes, int count, double share)
{
    uint32_t shared[MOST_TEXTS][MOST_TEXTS];
    memset(shared, 0, sizeof shared);
    for (uint32_t at = 0; at < places; at++) {
        uint32_t held = table[at].held;
        for (int i = 0; held & (held - 1); i++, held >>= 1) /* while more than one is left */
            for (int j = i + 1; held & 1 && j < count; j++)
                shared[i][j] += (held >> (j - i)) & 1;
    }
    PyObject *found = PyList_New(0);
    for (int i = 0; found != NULL && i < count; i++)
        for (int j = i + 1; found != NULL && j < count; j++) {
            double both = shared[i][j];
            if (both < share * ((double)sizes[i] + (double)sizes[j] - both))
                continue;
            PyObject *pair = Py_BuildValue("(ii)", i, j);
            if (pair == NULL || PyList_Append(found, pair) < 0)
                Py_CLEAR(found);
            Py_XDECREF(pair);
        }
    return found;
}

/* sharing(texts, share): the pairs of texts of which so large a share of the different words, whatever their case, is
   in both; None where that cannot be said here. */
static PyObject *sharing(PyObject *self, PyObject *given)
{
    (void)self;
    PyObject *texts;
    double share;
    if (!PyArg_ParseTuple(given, "O!d", &PyList_Type, &texts, &share))
        return NULL;
    Py_ssize_t count = PyList_Size(texts);
    if (count > MOST_TEXTS)
        Py_RETURN_NONE;
    char *bytes = PyMem_Malloc(MOST_BYTES);
    uint32_t ends[MOST_TEXTS], sizes[MOST_TEXTS], places = 0;
    Word *table = NULL;
    PyObject *found = NULL;
    int copied = bytes == NULL ? -1 : copy_texts(texts, count, bytes, ends);
    if (bytes == NULL)
        PyErr_NoMemory();
    if (copied == 0) {
        found = Py_None;
        Py_INCREF(found);
    }
    if (copied == 1) {
        lower(bytes, count ? ends[count - 1] : 0);
        places = room_for(bytes, ends, count);
        table = PyMem_Calloc(places, sizeof *table);
        if (table == NULL)
            PyErr_NoMemory();
    }
    if (table != NULL) {
        for (int i = 0; i < (int)count; i++)
            sizes[i] = take_in(table, places, bytes, i ? ends[i - 1] : 0, ends[i], 1u << i);
        found = pairs_of(table, places, sizes, (int)count, share);
    }
    PyMem_Free(table);
    PyMem_Free(bytes);
    return found;
}

#define MOST_WORDS 128 /* of a text that is compared word by word */

/* A word of letters, digits and underscores, whatever its case. */
typedef struct {
    uint64_t hash;
    const char *start;
    Py_ssize_t length;
} Spoken;

static inline char small(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static inline int is_part(char c)
{
    return (small(c) >= 'a' && small(c) <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static int same_word(const Spoken *one, const Spoken *other)
{
    if (one->hash != other->hash || one->length != other->length)
        return 0;
    for (Py_ssize_t i = 0; i < one->length; i++)
        if (small(one->start[i]) != small(other->start[i]))
            return 0;
    return 1;
}

static int holds(const Spoken *words, Py_ssize_t count, const Spoken *word)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (same_word(&words[i], word))
            return 1;
    return 0;
}

/* The different words of a text; one more than `most` where there are more than that. */
static Py_ssize_t words_of(const char *text, Py_ssize_t size, Spoken *words, Py_ssize_t most)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t at = 0; at < size;) {
        if (!is_part(text[at])) {
            at++;
            continue;
        }
        Spoken word = {14695981039346656037ull, text + at, 0};
        for (; at < size && is_part(text[at]); at++)
            word.hash = (word.hash ^ (unsigned char)small(text[at])) * 1099511628211ull;
        word.length = text + at - word.start;
        if (holds(words, count, &word))
            continue;
        if (count == most)
            return most + 1;
        words[count++] = word;
    }
    return count;
}

/* The bytes of a text of ASCII alone; NULL where there are others, or after an error. */
static const char *plain_text(PyObject *text, Py_ssize_t *size)
{
    if (text == NULL || !PyUnicode_Check(text)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "not a text");
        return NULL;
    }
    const char *bytes = PyUnicode_AsUTF8AndSize(text, size);
    if (bytes == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) /* half a pair */
        PyErr_Clear();
    return bytes != NULL && *size == PyUnicode_GetLength(text) ? bytes : NULL;
}

/* few_words(text, most): whether a text has at most so many different words, whatever their case; None where that cannot
   be said here. */
static PyObject *few_words(PyObject *self, PyObject *given)
{
    (void)self;
    PyObject *text;
    Py_ssize_t most, size;
    Spoken words[MOST_WORDS];
    if (!PyArg_ParseTuple(given, "On", &text, &most))
        return NULL;
    const char *bytes = plain_text(text, &size);
    if (bytes == NULL && PyErr_Occurred())
        return NULL;
    if (bytes == NULL || most < 0 || most > MOST_WORDS)
        Py_RETURN_NONE;
    return PyBool_FromLong(words_of(bytes, size, words, most) <= most);
}

/* alike(text, others, share): which of other texts have so large a share of all the different words in common with one;
   None where that cannot be said here. */
static PyObject *alike(PyObject *self, PyObject *given)
{
    (void)self;
    PyObject *text, *others;
    double share;
    Py_ssize_t size;
    Spoken mine[MOST_WORDS], theirs[MOST_WORDS];
    if (!PyArg_ParseTuple(given, "OO!d", &text, &PyList_Type, &others, &share))
        return NULL;
    const char *bytes = plain_text(text, &size);
    if (bytes == NULL && PyErr_Occurred())
        return NULL;
    Py_ssize_t count = bytes != NULL ? words_of(bytes, size, mine, MOST_WORDS) : MOST_WORDS + 1;
    if (count > MOST_WORDS || !(share * (MOST_WORDS - 1) > (double)count))
        Py_RETURN_NONE;
    Py_ssize_t most = (Py_ssize_t)((double)count / share) + 1; /* who has more words shares too few of them */
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < PyList_Size(others); i++) {
        bytes = plain_text(PyList_GetItem(others, i), &size);
        if (bytes == NULL) {
            Py_CLEAR(found);
            if (PyErr_Occurred())
                return NULL;
            Py_RETURN_NONE;
        }
        Py_ssize_t there = words_of(bytes, size, theirs, most), both = 0;
        for (Py_ssize_t j = 0; there <= most && j < count; j++)
            both += holds(theirs, there, &mine[j]);
        Py_ssize_t all = count + there - both;
        if (there > most || (double)both / (double)(all > 1 ? all : 1) < share)
            continue;
        PyObject *place = PyLong_FromSsize_t(i);
        if (place == NULL || PyList_Append(found, place) < 0)
            Py_CLEAR(found);
        Py_XDECREF(place);
    }
    return found;
}

PyMethodDef sharing_methods[] = {
    {"sharing", sharing, METH_VARARGS, "The pairs of texts that share many of their words."},
    {"few_words", few_words, METH_VARARGS, "Whether a text has few different words."},
    {"alike", alike, METH_VARARGS, "Which texts share many of their words with one."},
    {NULL, NULL, 0, NULL},
};
