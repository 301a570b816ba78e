/* Taking a plain text apart. `semantics/reading.py` says what the parts mean and does the same with regular expressions,
   which also read what is not ASCII or has apostrophes; it goes on where there are numbers. */

#include "native.h"

enum { COUNTS = 2, JOINS = 8 }; /* bits of what a word does */

/* The words of a text, in small letters, as they are known. */
typedef struct {
    PyObject *words, *stems, *content, *told, *capital;
    PyObject *known; /* by word: what it does, its stem, and itself */
    long does;       /* all of them together */
    int ended;       /* whether a capital of the next word says nothing */
} Read;

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static int is_word(char c)
{
    return is_letter(c) || is_digit(c) || c == '_';
}

/* Texts end with a zero, so that the byte after the last may be looked at. */
static const char *digits_end(const char *at)
{
    while (is_digit(*at))
        at++;
    return at;
}

static int is_date(const char *at)
{
    static const char like[] = "0000-00-00";
    for (int i = 0; i < 10; i++)
        if (like[i] == '-' ? at[i] != '-' : !is_digit(at[i]))
            return 0;
    return 1;
}

/* The end of a number: a date, a version or a time, thousands, or digits. */
static const char *number_end(const char *at)
{
    if (is_date(at))
        return at + 10;
    const char *end = digits_end(at), *last = NULL, *plain = end, *before = NULL;
    while ((*end == '.' || *end == ':') && is_digit(end[1])) {
        before = end;
        last = end + 1;
        end = digits_end(last);
    }
    if (last != NULL && is_letter(*end)) { /* what a letter follows is given back: a digit, or all after the last mark */
        end = end - last > 1 ? end - 1 : before;
        if (end == plain)
            last = NULL;
    }
    if (last != NULL)
        return end;
    for (end = plain; *end == ',' && is_digit(end[1]) && is_digit(end[2]) && is_digit(end[3]);)
        end += 4;
    return end;
}

static const char *word_end(const char *at)
{
    while (is_letter(*at) || is_digit(*at))
        at++;
    while ((*at == '.' || *at == '_') && is_word(at[1]))
        for (at++; is_word(*at);)
            at++;
    return at;
}

/* One word; 1, or 0 where it has to be read otherwise, or -1 after an error. */
static int take(Read *read, const char *from, Py_ssize_t size)
{
    char small[256];
    int inside = 0;
    if (size > (Py_ssize_t)sizeof small)
        return 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        small[i] = is_upper(from[i]) ? (char)(from[i] + 'a' - 'A') : from[i];
        inside |= i > 0 && is_upper(from[i]);
    }
    if (size == 6 && memcmp(small, "cannot", 6) == 0)
        return 0;
    int large = is_upper(*from) && (!read->ended || inside);
    read->ended = size == 1 && (*from == '.' || *from == '?' || *from == '!' || *from == ':');
    PyObject *word = PyUnicode_FromStringAndSize(small, size);
    PyObject *known = word == NULL ? NULL : PyObject_GetItem(read->known, word);
    Py_XDECREF(word);
    if (known == NULL)
        return -1;
    PyObject *does = PyTuple_GetItem(known, 0), *stem = does ? PyTuple_GetItem(known, 1) : NULL;
    word = stem ? PyTuple_GetItem(known, 2) : NULL;
    long here = word ? PyLong_AsLong(does) : -1;
    int sound = !PyErr_Occurred();
    read->does |= here;
    if (sound && here & 1) {
        PyObject *place = PyLong_FromSsize_t(PyList_Size(read->words));
        sound = place != NULL && PyList_Append(read->content, place) == 0 && PyList_Append(read->told, stem) == 0;
        Py_XDECREF(place);
    }
    sound = sound && PyList_Append(read->words, word) == 0 && PyList_Append(read->stems, stem) == 0 &&
            PyList_Append(read->capital, large ? Py_True : Py_False) == 0;
    Py_DECREF(known);
    return sound ? 1 : -1;
}

static int take_all(Read *read, const char *text, Py_ssize_t size, Py_ssize_t most)
{
    int going = 1;
    for (const char *at = text, *end = text + size; at < end && going == 1 && PyList_Size(read->words) < most;) {
        const char *from = at;
        if (is_digit(*at))
            at = number_end(at);
        else if (is_letter(*at))
            at = word_end(at);
        else {
            at++;
            if (*from == 0 || strchr("$%#.;:?!()", *from) == NULL)
                continue;
        }
        going = take(read, from, at - from);
    }
    return going;
}

/* What is neither a letter, a digit, a blank nor plain punctuation, sorted; NULL after an error. */
static PyObject *marks_of(const char *text, Py_ssize_t size)
{
    unsigned counts[128] = {0};
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        int blank = c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
        if (blank || (is_word((char)c) && c != '_') || (c != 0 && strchr(".,;:!?'\"()-`$%", c) != NULL))
            continue;
        counts[c & 127]++;
        found++;
    }
    char few[64], *marks = found <= (Py_ssize_t)sizeof few ? few : PyMem_Malloc((size_t)found), *end = marks;
    if (marks == NULL)
        return PyErr_NoMemory();
    for (int c = 0; c < 128; c++)
        for (unsigned i = 0; i < counts[c]; i++)
            *end++ = (char)c;
    PyObject *out = PyUnicode_FromStringAndSize(marks, found);
    if (marks != few)
        PyMem_Free(marks);
    return out;
}

static int is_plain(const char *text, Py_ssize_t size)
{
    return memchr(text, '\'', (size_t)size) == NULL && memchr(text, '`', (size_t)size) == NULL &&
           memchr(text, 0, (size_t)size) == NULL && strstr(text, "RB-") == NULL && strstr(text, "SB-") == NULL;
}

PyDoc_STRVAR(take_apart_doc,
             "take_apart(text, known, most, /)\n--\n\n"
             "Words, stems, places and stems of the words that carry meaning, words and stems each once, capitals, marks, and\n"
             "what all words do; a list of words and one of capitals where there are numbers or words that are one with\n"
             "the next; None where a text is not as plain as that.\n"
             "known: by word what it does, its stem, and itself; most: words that are read.");

static PyObject *take_apart(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("take_apart", count, 3))
        return NULL;
    Py_ssize_t size = 0, most = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyUnicode_Check(given[0]) || !PyDict_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "take_apart: not a text and what is known of words");
        return NULL;
    }
    const char *text = PyUnicode_AsUTF8AndSize(given[0], &size);
    if (text == NULL && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear(); /* half a pair */
    if (text == NULL || size != PyUnicode_GetLength(given[0]) || !is_plain(text, size))
        Py_RETURN_NONE;
    Read read = {PyList_New(0), PyList_New(0), PyList_New(0), PyList_New(0), PyList_New(0), given[1], 0, 1};
    int there = read.words && read.stems && read.content && read.told && read.capital;
    int going = there ? take_all(&read, text, size, most) : -1;
    PyObject *out = NULL, *parts[8] = {NULL};
    if (going == 1 && read.does & (COUNTS | JOINS))
        out = Py_BuildValue("(OO)", read.words, read.capital);
    else if (going == 1) {
        PyObject *lists[] = {read.words, read.stems, read.content, read.told, read.capital};
        static const int places[] = {0, 1, 2, 3, 6};
        int whole = 1;
        for (int i = 0; i < 5; i++)
            whole = (parts[places[i]] = PyList_AsTuple(lists[i])) != NULL && whole;
        whole = whole && (parts[4] = PyFrozenSet_New(parts[0])) != NULL && (parts[5] = PyFrozenSet_New(parts[1])) != NULL &&
                (parts[7] = marks_of(text, size)) != NULL;
        if (whole)
            out = Py_BuildValue("(OOOOOOOOl)", parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6],
                                parts[7], read.does);
        for (int i = 0; i < 8; i++)
            Py_XDECREF(parts[i]);
    } else if (going == 0) {
        out = Py_None;
        Py_INCREF(out);
    }
    Py_XDECREF(read.words);
    Py_XDECREF(read.stems);
    Py_XDECREF(read.content);
    Py_XDECREF(read.told);
    Py_XDECREF(read.capital);
    return out;
}

PyMethodDef reading_methods[] = {
    METHOD(take_apart),
    {NULL, NULL, 0, NULL},
};
