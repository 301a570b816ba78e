/* Texts cut into the word pieces of a vocabulary file, which is searched where it lies: `embedding/vocabulary.py` says
   how it is laid out, `embedding/wordpiece.py` what a text is cut into and does the same in Python. What a character
   beyond ASCII becomes is asked of the table there. */

#include <stdlib.h>

#include "native.h"

#define HEAD 16      /* bytes before the table: magic, number of tokens, number of places */
#define MAX_WORD 100 /* characters; longer words are not known */
#define WIDTH 4      /* bytes that a character may have */

/* What a byte of ASCII is; those that are none of these are left out. */
enum { LETTER = 1, MARK = 2, BLANK = 3, BEYOND = 4 };
static uint8_t kinds[256];
static uint32_t steps[256]; /* of the checksum, byte by byte */

static inline uint32_t step(uint32_t sum, uint8_t byte)
{
    return steps[(sum ^ byte) & 0xff] ^ sum >> 8;
}

/* A vocabulary file. */
typedef struct {
    const uint8_t *table, *starts, *tokens;
    uint32_t count, last, size; /* of the tokens, of the places, of the bytes of the tokens */
} Vocabulary;

/* A word while it is read: lower-case bytes, and where each of its characters begins. */
typedef struct {
    uint8_t bytes[MAX_WORD * WIDTH];
    uint16_t begin[MAX_WORD + 1];
    int characters; /* more than MAX_WORD: the rest of it is not held */
    int size;
} Word;

/* What is being put together for a call. */
typedef struct {
    Vocabulary vocabulary;
    int32_t unknown;
    const uint8_t *kept; /* by number; NULL: all are */
    Py_ssize_t most;     /* of a text */
    int32_t *numbers;
    Py_ssize_t count, room, start; /* `start` is where those of this text begin */
    Word word;
} Cut;

static inline uint32_t four(const uint8_t *from)
{
    uint32_t number;
    memcpy(&number, from, sizeof number);
    return number;
}

static int read_vocabulary(const Py_buffer *file, Vocabulary *into)
{
    const uint8_t *bytes = file->buf;
    uint64_t size = (uint64_t)file->shape[0], places = 0, count = 0, begin = 0;
    int right = size >= HEAD && memcmp(bytes, "skepvoc1", 8) == 0;
    if (right) {
        count = four(bytes + 8);
        places = four(bytes + 12);
        begin = HEAD + 2 * places + 4 * (count + 1);
        right = places > 0 && (places & (places - 1)) == 0 && begin <= size && size - begin == four(bytes + begin - 4);
    }
    if (!told(right, "vocabulary: none, or a damaged one"))
        return 0;
    *into = (Vocabulary){bytes + HEAD, bytes + HEAD + 2 * places, bytes + begin, (uint32_t)count, (uint32_t)places - 1,
                         (uint32_t)(size - begin)};
    return 1;
}

enum { ABSENT = -1, DAMAGED = -2 };

/* The number of a token: the mark of what follows another piece, if it does, then `size` bytes. */
static int32_t number_of(const Vocabulary *all, int follows, const uint8_t *bytes, uint32_t size, uint32_t sum)
{
    uint32_t at = ~step(sum, '\n') & all->last, front = follows ? 2 : 0;
    for (uint32_t tried = 0; tried <= all->last; tried++, at = (at + 1) & all->last) {
        uint16_t number;
        memcpy(&number, all->table + 2 * (size_t)at, sizeof number);
        if (number == 0)
            return ABSENT;
        if (number > all->count)
            return DAMAGED;
        uint32_t begin = four(all->starts + 4 * (size_t)(number - 1)), end = four(all->starts + 4 * (size_t)number);
        if (end > all->size || begin > end)
            return DAMAGED;
        const uint8_t *token = all->tokens + begin;
        if (end - begin == front + size + 1 && token[front + size] == '\n' &&
            memcmp(token + front, bytes, size) == 0 && (!follows || (token[0] == '#' && token[1] == '#')))
            return (int32_t)number - 1;
    }
    return ABSENT;
}

/* The pieces of the word, longest first; how many, or DAMAGED. */
static int cut_word(const Cut *cut, int32_t *pieces)
{
    const Word *word = &cut->word;
    uint32_t sums[MAX_WORD + 1], mark = step(step(~0u, '#'), '#');
    int count = 0, start = 0;
    while (start < word->characters) {
        uint32_t sum = start ? mark : ~0u;
        int first = word->begin[start], end = start, at = first;
        while (end < word->characters) {
            for (end++; at < word->begin[end]; at++)
                sum = step(sum, word->bytes[at]);
            sums[end] = sum;
        }
        int32_t found = ABSENT;
        while (end > start &&
               (found = number_of(&cut->vocabulary, start > 0, word->bytes + first,
                                  (uint32_t)(word->begin[end] - first), sums[end])) == ABSENT)
            end--;
        if (found == DAMAGED)
            return DAMAGED;
        if (found == ABSENT) {
            pieces[0] = cut->unknown;
            return 1;
        }
        pieces[count++] = found;
        start = end;
    }
    return count;
}

static inline int is_full(const Cut *cut)
{
    return cut->count - cut->start >= cut->most;
}

/* The word that was read is over. */
static int end_word(Cut *cut)
{
    Word *word = &cut->word;
    if (word->characters == 0)
        return 1;
    int32_t pieces[MAX_WORD];
    int count = 1;
    pieces[0] = cut->unknown;
    if (word->characters <= MAX_WORD) {
        word->begin[word->characters] = (uint16_t)word->size;
        count = cut_word(cut, pieces);
    }
    word->characters = word->size = 0;
    if (!told(count != DAMAGED, "vocabulary: a damaged one"))
        return 0;
    if (cut->count + count > cut->room) {
        Py_ssize_t room = 2 * (cut->count + count) + 512;
        int32_t *larger = realloc(cut->numbers, (size_t)room * sizeof *larger);
        if (larger == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        cut->numbers = larger;
        cut->room = room;
    }
    for (int i = 0; i < count && !is_full(cut); i++) {
        cut->numbers[cut->count] = pieces[i];
        cut->count += cut->kept == NULL || cut->kept[pieces[i]];
    }
    return 1;
}

/* One more character of the word. */
static inline void add(Word *word, const uint8_t *character, int size)
{
    if (word->characters < MAX_WORD) {
        word->begin[word->characters] = (uint16_t)word->size;
        memcpy(word->bytes + word->size, character, (size_t)size);
        word->size += size;
    }
    word->characters += word->characters <= MAX_WORD;
}

/* More letters and digits of ASCII. */
static inline void add_letters(Word *word, const uint8_t *letters, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count && word->characters <= MAX_WORD; i++) {
        uint8_t lower = letters[i] | (letters[i] >= 'A' && letters[i] <= 'Z' ? 0x20 : 0);
        add(word, &lower, 1);
    }
}

/* How many bytes a character has, by the first of them; no more than there are. */
static inline int width_of(const uint8_t *at, const uint8_t *end)
{
    int width = *at < 0x80 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
    return end - at < width ? (int)(end - at) : width;
}

static uint32_t code_of(const uint8_t *at, int width)
{
    uint32_t code = width == 1 ? *at : *at & (0x7fu >> width);
    for (int i = 1; i < width; i++)
        code = code << 6 | (at[i] & 0x3f);
    return code;
}

/* What a character beyond ASCII becomes: letters, and blanks around what stands alone. */
static int add_form(Cut *cut, PyObject *characters, uint32_t code)
{
    PyObject *key = PyLong_FromUnsignedLong(code), *form = key ? PyObject_GetItem(characters, key) : NULL;
    Py_XDECREF(key);
    Py_ssize_t size = 0;
    const uint8_t *at = form ? (const uint8_t *)PyUnicode_AsUTF8AndSize(form, &size) : NULL, *end = at + size;
    int sound = at != NULL;
    for (int width; sound && at < end; at += width) {
        width = width_of(at, end);
        if (*at == ' ')
            sound = end_word(cut);
        else
            add(&cut->word, at, width);
    }
    Py_XDECREF(form);
    return sound;
}

static int cut_bytes(Cut *cut, PyObject *characters, const uint8_t *at, const uint8_t *end)
{
    Word *word = &cut->word;
    int sound = 1;
    cut->start = cut->count;
    word->characters = word->size = 0;
    for (Py_ssize_t width = 1; sound && at < end && !is_full(cut); at += width) {
        width = 1;
        switch (kinds[*at]) {
        case LETTER:
            while (at + width < end && kinds[at[width]] == LETTER)
                width++;
            add_letters(word, at, width);
            break;
        case MARK:
            if ((sound = end_word(cut))) {
                add(word, at, 1);
                sound = end_word(cut);
            }
            break;
        case BLANK:
            sound = end_word(cut);
            break;
        case BEYOND:
            width = width_of(at, end);
            sound = add_form(cut, characters, code_of(at, (int)width));
        }
    }
    return sound && end_word(cut);
}

static int cut_text(Cut *cut, PyObject *characters, PyObject *text)
{
    Py_ssize_t size;
    PyObject *held = NULL;
    const char *bytes = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    if (bytes == NULL) {
        if (!PyUnicode_Check(text)) {
            PyErr_SetString(PyExc_TypeError, "pieces: not a text");
            return 0;
        }
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return 0;
        PyErr_Clear(); /* half a pair */
        held = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
        bytes = held ? PyBytes_AsString(held) : NULL;
        size = held ? PyBytes_Size(held) : 0;
    }
    int sound = bytes != NULL &&
                cut_bytes(cut, characters, (const uint8_t *)bytes, (const uint8_t *)bytes + size);
    Py_XDECREF(held);
    return sound;
}

PyDoc_STRVAR(pieces_doc, "pieces(vocabulary, characters, unknown, texts, kept, most, /)\n--\n\n"
                         "The numbers of the word pieces of each of a list of texts, text after text, and how many each has,\n"
                         "four bytes each. Of a text no more than `most`, counting those that have a byte other than 0 in\n"
                         "`kept`, or all of them where that is None.");

static PyObject *pieces(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("pieces", count, 6))
        return NULL;
    Buffers buffers = {.count = 0};
    Cut cut = {.count = 0};
    uint32_t *counts = NULL;
    PyObject *texts = given[3], *numbers = NULL, *sizes = NULL, *answer = NULL;
    Py_buffer *file = array(&buffers, given[0], "vocabulary", 1, 1, 0);
    if (file == NULL || !read_vocabulary(file, &cut.vocabulary))
        goto end;
    long unknown = PyLong_AsLong(given[2]);
    cut.most = PyErr_Occurred() ? 0 : PyLong_AsSsize_t(given[5]);
    if (PyErr_Occurred() || !told(unknown >= 0 && unknown < (long)cut.vocabulary.count, "unknown: no token"))
        goto end;
    cut.unknown = (int32_t)unknown;
    if (given[4] != Py_None) {
        Py_buffer *kept = array(&buffers, given[4], "kept", 1, 1, 0);
        if (kept == NULL || !long_enough(kept, "kept", cut.vocabulary.count))
            goto end;
        cut.kept = kept->buf;
    }
    if (!PyDict_Check(given[1]) || !PyList_Check(texts)) {
        PyErr_SetString(PyExc_TypeError, "pieces takes a table of characters and a list of texts");
        goto end;
    }
    Py_ssize_t many = PyList_Size(texts);
    counts = malloc((size_t)(many + 1) * sizeof *counts);
    if (counts == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < many; i++) {
        PyObject *text = PyList_GetItem(texts, i); /* whoever is asked on the way may change the list */
        if (text == NULL)
            goto end;
        Py_INCREF(text);
        int sound = cut_text(&cut, given[1], text);
        Py_DECREF(text);
        if (!sound)
            goto end;
        counts[i] = (uint32_t)(cut.count - cut.start);
    }
    numbers = PyBytes_FromStringAndSize((char *)cut.numbers, cut.count * (Py_ssize_t)sizeof *cut.numbers);
    sizes = PyBytes_FromStringAndSize((char *)counts, many * (Py_ssize_t)sizeof *counts);
    if (numbers != NULL && sizes != NULL)
        answer = PyTuple_Pack(2, numbers, sizes);
end:
    release(&buffers);
    free(cut.numbers);
    free(counts);
    Py_XDECREF(numbers);
    Py_XDECREF(sizes);
    return answer;
}

void pieces_start(void)
{
    for (int c = '!'; c <= '~'; c++)
        kinds[c] = MARK;
    for (int c = 0; c < 26; c++)
        kinds['A' + c] = kinds['a' + c] = LETTER;
    for (int c = 0; c < 10; c++)
        kinds['0' + c] = LETTER;
    kinds['\t'] = kinds['\n'] = kinds['\r'] = kinds[' '] = BLANK;
    memset(kinds + 0x80, BEYOND, 0x80);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        steps[byte] = sum;
    }
}

PyMethodDef pieces_methods[] = {
    METHOD(pieces),
    {NULL, NULL, 0, NULL},
};
