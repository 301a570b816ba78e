/* Which texts share many of their words: a few among one another, in one pass over all of them, or others with one. */

#include "native.h"

#define MOST_TEXTS 32 /* as many as a mask has bits */
#define MOST_BYTES (1 << 14) /* of all texts */
#define CHAINS 512 /* words that meet in one cost little among so few */
#define EIGHT 8 /* bytes that are looked at together */
#define IN_ALL(byte) (0x0101010101010101ull * (byte)) /* one byte, eight times */

typedef struct {
    uint64_t hash;
    uint32_t start, length;
    uint32_t held; /* by which texts, a bit each */
    uint32_t next; /* of its chain, from 1; 0 where it is the last */
} Word;

/* The different words of some texts. The texts stand one after another in small letters, a blank behind each. */
typedef struct {
    char *bytes;
    Word *words;
    uint32_t count, chains[CHAINS]; /* the first word of each, from 1; 0 where there is none */
} Words;

/* What str.split() takes for a blank, as far as it is ASCII. */
static inline int is_blank(uint8_t c)
{
    return (c == ' ') | ((uint8_t)(c - 9) < 5) | ((uint8_t)(c - 28) < 4);
}

/* Copy a text with small letters for capital ones. */
static void copy_lower(char *to, const char *from, uint32_t size)
{
    for (uint32_t at = 0; at < size; at++)
        to[at] = (char)(from[at] + ((uint8_t)(from[at] - 'A') < 26) * ('a' - 'A'));
}

static inline uint64_t mixed(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9E3779B97F4A7C15ull;
    return hash ^ (hash >> 32);
}

/* Where the word that begins somewhere ends, and a number for its bytes, eight of which are looked at together. A blank
   ends it, and there is one behind every text; few other bytes are as small as one. */
static uint32_t end_of_word(const char *bytes, uint32_t at, uint64_t *hash)
{
    for (;;) {
        uint64_t eight, small;
        memcpy(&eight, bytes + at, EIGHT);
        small = (eight - IN_ALL(' ' + 1)) & IN_ALL(0x80); /* bytes are ASCII: the first one that is set is right */
        if (!small) {
            *hash = mixed(*hash, eight);
            at += EIGHT;
            continue;
        }
        int before = first_one(small) / 8;
        if (is_blank((uint8_t)bytes[at + (uint32_t)before])) {
            *hash = mixed(*hash, before ? eight << (64 - 8 * before) : 0);
            return at + (uint32_t)before;
        }
        *hash = mixed(*hash, eight << (56 - 8 * before));
        at += (uint32_t)before + 1;
    }
}

/* Take in the words of one text; how many different ones it has. */
static uint32_t take_in(Words *all, uint32_t from, uint32_t to, uint32_t bit)
{
    uint32_t different = 0;
    for (uint32_t at = from; at < to;) {
        if (is_blank((uint8_t)all->bytes[at])) {
            at++;
            continue;
        }
        uint64_t hash = 0;
        uint32_t start = at;
        at = end_of_word(all->bytes, at, &hash);
        uint32_t length = at - start, *chain = &all->chains[hash % CHAINS], place = *chain;
        while (place && !(all->words[place - 1].hash == hash && all->words[place - 1].length == length &&
                          memcmp(all->bytes + all->words[place - 1].start, all->bytes + start, length) == 0))
            place = all->words[place - 1].next;
        if (!place) {
            all->words[all->count++] = (Word){hash, start, length, 0, *chain};
            place = *chain = all->count;
        }
        Word *word = &all->words[place - 1];
        different += !(word->held & bit);
        word->held |= bit;
    }
    return different;
}

static PyObject *pairs_of(const Words *all, const uint32_t *sizes, int count, double share)
{
    uint32_t shared[MOST_TEXTS][MOST_TEXTS];
    memset(shared, 0, (size_t)count * sizeof *shared);
    for (uint32_t at = 0; at < all->count; at++)
        for (uint32_t held = all->words[at].held; held & (held - 1);) { /* while more than one is left */
            int one = first_one(held);
            held &= held - 1;
            for (uint32_t others = held; others; others &= others - 1)
                shared[one][first_one(others)]++;
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

static const char *plain_text(PyObject *text, Py_ssize_t *size);

/* sharing(texts, share): the pairs of texts of which so large a share of the different words, whatever their case, is
   in both; None where that cannot be said here. */
static PyObject *sharing(PyObject *self, PyObject *given)
{
    (void)self;
    PyObject *texts, *found = NULL;
    double share;
    if (!PyArg_ParseTuple(given, "O!d", &PyList_Type, &texts, &share))
        return NULL;
    Py_ssize_t count = PyList_Size(texts), sizes[MOST_TEXTS], left = MOST_BYTES;
    const char *from[MOST_TEXTS];
    uint32_t different[MOST_TEXTS], end = 0;
    if (count > MOST_TEXTS)
        Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < count; i++) {
        from[i] = plain_text(PyList_GetItem(texts, i), &sizes[i]);
        if (from[i] == NULL && PyErr_Occurred())
            return NULL;
        if (from[i] == NULL || sizes[i] > left)
            Py_RETURN_NONE;
        left -= sizes[i];
    }
    size_t room = (size_t)(MOST_BYTES - left + count);
    Words all = {.bytes = PyMem_Malloc(room + EIGHT), .words = PyMem_Malloc((room / 2 + 1) * sizeof(Word))};
    if (all.bytes == NULL || all.words == NULL)
        PyErr_NoMemory();
    else {
        for (Py_ssize_t i = 0; i < count; i++) {
            copy_lower(all.bytes + end, from[i], (uint32_t)sizes[i]);
            end += (uint32_t)sizes[i];
            all.bytes[end++] = ' ';
        }
        memset(all.bytes + end, ' ', EIGHT);
        end = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            different[i] = take_in(&all, end, end + (uint32_t)sizes[i], 1u << i);
            end += (uint32_t)sizes[i] + 1;
        }
        found = pairs_of(&all, different, (int)count, share);
    }
    PyMem_Free(all.words);
    PyMem_Free(all.bytes);
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
