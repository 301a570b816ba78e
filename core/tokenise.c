/* Texts to terms: every distinct chunk between blanks gets a number, and its terms are found once. Plain English words
   and words with digits are done here; `skep.text.terms` is asked about all others, and is the oracle. */

#include "core.h"
#include "stem.h"
#include "string_table.h"

typedef struct {
    PyObject_HEAD
    Strings chunks, stop; /* chunks with their terms, and words that stand for nothing */
    PyObject *analyse, *apart;
    uint64_t seed;
} Cutter;

/* What a byte of ASCII is. */
enum { BLANK = 1, UPPER = 2, LOWER = 4, DIGIT = 8, BEFORE = 16, AFTER = 32, ENDS = 64 };
static uint8_t kinds[256];

/* A text as UTF-8, half pairs included; `held` keeps the bytes, and is NULL if something went wrong. */
static const char *bytes_of(PyObject *text, Py_ssize_t *size, PyObject **held)
{
    const char *bytes = PyUnicode_AsUTF8AndSize(text, size);
    if (bytes != NULL) {
        Py_INCREF(text);
        *held = text;
        return bytes;
    }
    *held = NULL;
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear();
    *held = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    if (*held == NULL)
        return NULL;
    *size = PyBytes_Size(*held);
    return PyBytes_AsString(*held);
}

static PyObject *text_of(const char *bytes, size_t size)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)size, "surrogatepass");
}

/* A word of lower-case letters, stemmed unless it is one that carries no meaning. */
static int plain_word(const Cutter *cutter, char *word, int size)
{
    uint64_t hash = hash_of(word, (size_t)size, cutter->seed);
    return cutter->stop.slots[slot_of(&cutter->stop, word, (size_t)size, hash)] ? size : stem(word, size);
}

/* The terms of a chunk, with blanks between them, into `out` (3 * LONGEST); -1 if skep.words has to be asked. */
static int easy_terms(const Cutter *cutter, const char *chunk, size_t length, char *out)
{
    if (length > LONGEST) /* words longer than this are not split, and seldom seen */
        return -1;
    int start = 0, end = (int)length, marks = 0;
    while (start < end && kinds[(uint8_t)chunk[start]] & BEFORE)
        start++;
    while (end > start && kinds[(uint8_t)chunk[end - 1]] & AFTER)
        marks |= !(kinds[(uint8_t)chunk[--end]] & ENDS);
    int size = end - start, all = 0, rest = 0;
    if (size == 0)
        return -1;
    for (int i = 0; i < size; i++) {
        uint8_t kind = kinds[(uint8_t)chunk[start + i]];
        if (!(kind & (UPPER | LOWER | DIGIT)))
            return -1;
        out[i] = (char)(chunk[start + i] | (kind & UPPER ? 0x20 : 0));
        all |= kind;
        rest |= i ? kind : 0;
    }
    if (rest & UPPER)
        return -1;
    if (!(all & DIGIT))
        return plain_word(cutter, out, size);
    if (start || marks)
        return -1;
    if (!(all & (UPPER | LOWER)))
        return size;
    /* Letters and digits. Where one follows the other once, both parts are terms too. */
    int first = kinds[(uint8_t)out[0]], turn = 1;
    while (turn < size && kinds[(uint8_t)out[turn]] == first)
        turn++;
    for (int i = turn; i < size; i++)
        if (kinds[(uint8_t)out[i]] == first)
            return size;
    char *next = out + size;
    *next++ = ' ';
    memcpy(next, out, (size_t)turn);
    next += first == LOWER ? plain_word(cutter, next, turn) : turn;
    *next++ = ' ';
    memcpy(next, out + turn, (size_t)(size - turn));
    next += first == LOWER ? size - turn : plain_word(cutter, next, size - turn);
    return (int)(next - out);
}

/* The number of a chunk; -1 if something went wrong. */
static int64_t number_of(Cutter *cutter, const char *chunk, size_t size)
{
    Strings *chunks = &cutter->chunks;
    uint64_t hash = hash_of(chunk, size, cutter->seed);
    if (chunks->slots != NULL) {
        uint32_t found = chunks->slots[slot_of(chunks, chunk, size, hash)];
        if (found)
            return found - 1;
    }
    char easy[3 * LONGEST + 16];
    const char *terms = easy;
    Py_ssize_t length = easy_terms(cutter, chunk, size, easy);
    PyObject *held = NULL;
    if (length < 0) {
        PyObject *asked = text_of(chunk, size);
        PyObject *answer = asked ? PyObject_CallFunctionObjArgs(cutter->analyse, asked, NULL) : NULL;
        Py_XDECREF(asked);
        terms = answer ? bytes_of(answer, &length, &held) : NULL;
        Py_XDECREF(answer);
        if (terms == NULL) {
            Py_XDECREF(held);
            return -1;
        }
    }
    int64_t number = -1;
    if (widen(chunks, cutter->seed)) {
        uint32_t slot = slot_of(chunks, chunk, size, hash); /* whoever was asked may have come by here */
        if (!chunks->slots[slot] && append(chunks, chunk, size, terms, (size_t)length))
            chunks->slots[slot] = chunks->count;
        number = (int64_t)chunks->slots[slot] - 1;
    }
    Py_XDECREF(held);
    return number;
}

/* What is being put together for a call. */
typedef struct {
    char *joined;
    size_t used, room;
    uint32_t *numbers;
    Py_ssize_t count, fits, start; /* of the numbers; `start` is where those of this text begin */
    int wanted;                    /* whether the terms are, too */
} Cut;

static int take(Cutter *cutter, Cut *cut, const char *chunk, size_t size)
{
    int64_t number = number_of(cutter, chunk, size);
    if (number < 0)
        return 0;
    if (cut->count == cut->fits) {
        Py_ssize_t fits = 2 * cut->fits + 4096;
        if (!grow((void **)&cut->numbers, (size_t)fits * sizeof(uint32_t)))
            return 0;
        cut->fits = fits;
    }
    cut->numbers[cut->count++] = (uint32_t)number;
    if (!cut->wanted)
        return 1;
    const Entry *entry = &cutter->chunks.entries[number];
    size_t length = entry->means;
    if (cut->used + length + 1 > cut->room) {
        size_t room = 2 * (cut->used + length + 1) + 1024;
        if (!grow((void **)&cut->joined, room))
            return 0;
        cut->room = room;
    }
    if (cut->count - cut->start > 1)
        cut->joined[cut->used++] = ' ';
    memcpy(cut->joined + cut->used, cutter->chunks.bytes + entry->means_at, length);
    cut->used += length;
    return 1;
}

/* The chunks of a text that is not plain ASCII, from skep.words. */
static int take_apart(Cutter *cutter, Cut *cut, PyObject *text)
{
    PyObject *parts = PyObject_CallFunctionObjArgs(cutter->apart, text, NULL);
    int sound = parts != NULL && PyList_Check(parts);
    if (parts != NULL && !sound)
        PyErr_SetString(PyExc_TypeError, "the parts of a text are not a list");
    for (Py_ssize_t i = 0; sound && i < PyList_Size(parts); i++) {
        PyObject *part = PyList_GetItem(parts, i), *held = NULL;
        Py_ssize_t size;
        const char *bytes = part ? bytes_of(part, &size, &held) : NULL;
        sound = bytes != NULL && take(cutter, cut, bytes, (size_t)size);
        Py_XDECREF(held);
    }
    Py_XDECREF(parts);
    return sound;
}

static int take_text(Cutter *cutter, Cut *cut, PyObject *text)
{
    Py_ssize_t size, characters = PyUnicode_GetLength(text);
    const char *bytes = characters < 0 ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL && (characters < 0 || !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)))
        return 0;
    if (bytes == NULL)
        PyErr_Clear();
    if (bytes == NULL || characters != size)
        return take_apart(cutter, cut, text);
    for (Py_ssize_t at = 0; at < size;) {
        while (at < size && kinds[(uint8_t)bytes[at]] & BLANK)
            at++;
        Py_ssize_t start = at;
        while (at < size && !(kinds[(uint8_t)bytes[at]] & BLANK))
            at++;
        if (at > start && !take(cutter, cut, bytes + start, (size_t)(at - start)))
            return 0;
    }
    return 1;
}

PyDoc_STRVAR(cut_doc, "cut(texts, wanted, /)\n--\n\n"
                      "The terms of each of a list of texts, joined by blanks (or none, if they are not wanted); how\n"
                      "many chunks each has; and the numbers of the chunks, text after text, four bytes each.");

static PyObject *cutter_cut(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Cutter *cutter = (Cutter *)self;
    if (count != 2 || !PyList_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "cut takes a list of texts and a flag");
        return NULL;
    }
    PyObject *texts = given[0], *joined = NULL, *sizes = NULL, *numbers = NULL, *answer = NULL;
    Py_ssize_t many = PyList_Size(texts);
    Cut cut = {.wanted = PyObject_IsTrue(given[1])};
    uint32_t *counts = malloc((size_t)(many + 1) * sizeof(uint32_t));
    joined = cut.wanted < 0 ? NULL : PyList_New(0);
    if (counts == NULL || joined == NULL) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < many; i++) {
        PyObject *text = PyList_GetItem(texts, i); /* whoever is asked on the way may change the list */
        if (text == NULL)
            goto end;
        Py_INCREF(text);
        cut.used = 0;
        cut.start = cut.count;
        int sound = take_text(cutter, &cut, text);
        Py_DECREF(text);
        if (!sound)
            goto end;
        counts[i] = (uint32_t)(cut.count - cut.start);
        if (cut.wanted) {
            PyObject *terms = text_of(cut.used ? cut.joined : "", cut.used);
            sound = terms != NULL && PyList_Append(joined, terms) == 0;
            Py_XDECREF(terms);
            if (!sound)
                goto end;
        }
    }
    sizes = PyBytes_FromStringAndSize((char *)counts, many * (Py_ssize_t)sizeof(uint32_t));
    numbers = PyBytes_FromStringAndSize((char *)cut.numbers, cut.count * (Py_ssize_t)sizeof(uint32_t));
    if (sizes != NULL && numbers != NULL)
        answer = PyTuple_Pack(3, joined, sizes, numbers);
end:
    free(counts);
    free(cut.joined);
    free(cut.numbers);
    Py_XDECREF(joined);
    Py_XDECREF(sizes);
    Py_XDECREF(numbers);
    return answer;
}

PyDoc_STRVAR(easy_doc, "easy(chunk, /)\n--\n\nThe terms of one chunk, joined by blanks; None if it has to be analysed.");

static PyObject *cutter_easy(PyObject *self, PyObject *chunk)
{
    Py_ssize_t size, characters = PyUnicode_GetLength(chunk);
    const char *bytes = characters < 0 || characters > LONGEST ? NULL : PyUnicode_AsUTF8AndSize(chunk, &size);
    char easy[3 * LONGEST + 16];
    int length = bytes == NULL ? -1 : easy_terms((Cutter *)self, bytes, (size_t)size, easy);
    if (characters >= 0 && length < 0) {
        PyErr_Clear(); /* half a pair: skep.words takes it as it is */
        Py_RETURN_NONE;
    }
    return length < 0 ? NULL : text_of(easy, (size_t)length);
}

enum { TERMS = 64, LETTERS = 2048 }; /* so many terms of a question, and so many letters of them, are done here */

/* The distinct terms of a question as far as they were found. */
typedef struct {
    char letters[LETTERS + 3 * LONGEST + 16];
    int start[TERMS], size[TERMS], stop[TERMS];
    int count, used, meaning; /* `meaning`: how many of them stand for something */
} Asked;

/* The terms of one more chunk; 0 if it has to be analysed, or there are too many. */
static int ask(const Cutter *cutter, Asked *asked, const char *chunk, size_t size)
{
    int begin = asked->used, end = easy_terms(cutter, chunk, size, asked->letters + begin);
    if (end < 0 || begin + end > LETTERS)
        return 0;
    end += begin;
    while (begin < end) {
        const char *term = asked->letters + begin;
        int length = 0, known = 0;
        while (begin + length < end && term[length] != ' ')
            length++;
        for (int i = 0; i < asked->count && !known; i++)
            known = asked->size[i] == length && memcmp(asked->letters + asked->start[i], term, (size_t)length) == 0;
        if (!known) {
            if (asked->count == TERMS)
                return 0;
            uint64_t hash = hash_of(term, (size_t)length, cutter->seed);
            int stop = cutter->stop.slots[slot_of(&cutter->stop, term, (size_t)length, hash)] != 0;
            asked->start[asked->count] = begin;
            asked->size[asked->count] = length;
            asked->stop[asked->count++] = stop;
            asked->meaning += !stop;
        }
        begin += length + 1;
    }
    asked->used = end;
    return 1;
}

PyDoc_STRVAR(asked_doc, "asked(text, /)\n--\n\n"
                        "The distinct terms of a question; those that stand for nothing only where there is nothing\n"
                        "else. None if something in it has to be analysed.");

static PyObject *cutter_asked(PyObject *self, PyObject *text)
{
    const Cutter *cutter = (Cutter *)self;
    Py_ssize_t size, characters = PyUnicode_GetLength(text);
    const char *bytes = characters < 0 ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    if (characters < 0)
        return NULL;
    Asked asked;
    asked.count = asked.used = asked.meaning = 0;
    int easy = bytes != NULL && characters == size;
    if (bytes == NULL)
        PyErr_Clear(); /* half a pair: skep.words takes it as it is */
    for (Py_ssize_t at = 0; easy && at < size;) {
        while (at < size && kinds[(uint8_t)bytes[at]] & BLANK)
            at++;
        Py_ssize_t start = at;
        while (at < size && !(kinds[(uint8_t)bytes[at]] & BLANK))
            at++;
        easy = at == start || ask(cutter, &asked, bytes + start, (size_t)(at - start));
    }
    if (!easy)
        Py_RETURN_NONE;
    PyObject *terms = PyList_New(0);
    for (int i = 0; terms != NULL && i < asked.count; i++) {
        if (asked.stop[i] && asked.meaning)
            continue;
        PyObject *term = text_of(asked.letters + asked.start[i], (size_t)asked.size[i]);
        if (term == NULL || PyList_Append(terms, term) < 0)
            Py_CLEAR(terms);
        Py_XDECREF(term);
    }
    return terms;
}

/* The terms of the chunk with a number, joined by blanks. */
static PyObject *cutter_item(PyObject *self, Py_ssize_t number)
{
    const Cutter *cutter = (Cutter *)self;
    if (number < 0 || number >= (Py_ssize_t)cutter->chunks.count) {
        PyErr_SetString(PyExc_IndexError, "no chunk has this number");
        return NULL;
    }
    const Entry *entry = &cutter->chunks.entries[number];
    return text_of(cutter->chunks.bytes + entry->means_at, entry->means);
}

static Py_ssize_t cutter_length(PyObject *self)
{
    return ((Cutter *)self)->chunks.count;
}

static int know_stop_words(Cutter *cutter, PyObject *words)
{
    PyObject *each = NULL, *rest = PyObject_GetIter(words);
    int sound = rest != NULL && widen(&cutter->stop, cutter->seed);
    while (sound && (each = PyIter_Next(rest)) != NULL) {
        Py_ssize_t size;
        const char *word = PyUnicode_AsUTF8AndSize(each, &size);
        sound = word != NULL && widen(&cutter->stop, cutter->seed);
        if (sound) {
            uint32_t slot =
                slot_of(&cutter->stop, word, (size_t)size, hash_of(word, (size_t)size, cutter->seed));
            if (!cutter->stop.slots[slot] && (sound = append(&cutter->stop, word, (size_t)size, "", 0)))
                cutter->stop.slots[slot] = cutter->stop.count;
        }
        Py_DECREF(each);
    }
    Py_XDECREF(rest);
    return sound && !PyErr_Occurred();
}

static PyObject *cutter_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *analyse, *apart, *stop, *seed;
    if (named != NULL && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "Cutter takes no arguments by name");
        return NULL;
    }
    if (!PyArg_UnpackTuple(given, "Cutter", 4, 4, &analyse, &apart, &stop, &seed))
        return NULL;
    if (!PyCallable_Check(analyse) || !PyCallable_Check(apart)) {
        PyErr_SetString(PyExc_TypeError, "Cutter asks two functions");
        return NULL;
    }
    uint64_t number = PyLong_AsUnsignedLongLongMask(seed);
    allocfunc make = PyErr_Occurred() ? NULL : (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Cutter *cutter = make ? (Cutter *)make(type, 0) : NULL;
    if (cutter == NULL)
        return NULL;
    cutter->seed = number;
    Py_INCREF(analyse);
    Py_INCREF(apart);
    cutter->analyse = analyse;
    cutter->apart = apart;
    if (!know_stop_words(cutter, stop)) {
        Py_DECREF(cutter);
        return NULL;
    }
    return (PyObject *)cutter;
}

static int cutter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Cutter *)self)->analyse);
    Py_VISIT(((Cutter *)self)->apart);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int cutter_clear(PyObject *self)
{
    Py_CLEAR(((Cutter *)self)->analyse);
    Py_CLEAR(((Cutter *)self)->apart);
    return 0;
}

static void cutter_dealloc(PyObject *self)
{
    Cutter *cutter = (Cutter *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    cutter_clear(self);
    let_go(&cutter->chunks);
    let_go(&cutter->stop);
    freefunc unmake = (freefunc)PyType_GetSlot(type, Py_tp_free);
    unmake(self);
    Py_DECREF(type);
}

static PyMethodDef cutter_methods[] = {
    {"cut", (PyCFunction)(void (*)(void))cutter_cut, METH_FASTCALL, cut_doc},
    {"easy", cutter_easy, METH_O, easy_doc},
    {"asked", cutter_asked, METH_O, asked_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cutter_slots[] = {
    {Py_tp_doc, "Cutter(analyse, apart, stop, seed, /)\n--\n\nCuts texts into numbered chunks. As a sequence it gives the terms of\n"
                "each, joined by blanks."},
    {Py_tp_new, cutter_new},
    {Py_tp_dealloc, cutter_dealloc},
    {Py_tp_traverse, cutter_traverse},
    {Py_tp_clear, cutter_clear},
    {Py_tp_methods, cutter_methods},
    {Py_sq_length, cutter_length},
    {Py_sq_item, cutter_item},
    {0, NULL},
};

static PyType_Spec cutter_spec = {
    .name = "skep._core.Cutter",
    .basicsize = sizeof(Cutter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = cutter_slots,
};

static void mark(const char *characters, int kind)
{
    for (; *characters; characters++)
        kinds[(uint8_t)*characters] |= (uint8_t)kind;
}

int text_fill(PyObject *module)
{
    for (int c = 0; c < 26; c++) {
        kinds['A' + c] = UPPER;
        kinds['a' + c] = LOWER;
    }
    for (int c = 0; c < 10; c++)
        kinds['0' + c] = DIGIT;
    mark("\t\n\v\f\r\x1c\x1d\x1e\x1f ", BLANK);
    mark("([{<\"'`*", BEFORE);
    mark(")]}>\"'`*.,:;!?", AFTER);
    mark(".,:;!?", ENDS);
    PyObject *type = PyType_FromModuleAndSpec(module, &cutter_spec, NULL);
    int done = type == NULL ? -1 : PyModule_AddObjectRef(module, "Cutter", type);
    Py_XDECREF(type);
    return done;
}
