/* Porter's stem of an English word in lower case, step by step as `stem` in `skep.text.terms`. */

#define LONGEST 64 /* letters of a word that may be asked about */

static inline int is_vowel(char c)
{
    return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

/* y is a vowel after a consonant that is no y itself. */
static inline int vowel_at(const char *word, int at)
{
    if (word[at] != 'y')
        return is_vowel(word[at]);
    return at > 0 && word[at - 1] != 'y' && !is_vowel(word[at - 1]);
}

static int has_vowel(const char *word, int size)
{
    for (int i = 0; i < size; i++)
        if (vowel_at(word, i))
            return 1;
    return 0;
}

static int measure(const char *word, int size)
{
    int found = 0;
    for (int i = 1; i < size; i++)
        found += vowel_at(word, i - 1) && !vowel_at(word, i);
    return found;
}

static int short_syllable(const char *word, int size)
{
    if (size < 3)
        return 0;
    const char *last = word + size - 3;
    return !vowel_at(last, 0) && vowel_at(last, 1) && !vowel_at(last, 2) && last[2] != 'w' && last[2] != 'x' &&
           last[2] != 'y';
}

static inline int ends(const char *word, int size, const char *ending)
{
    int length = (int)strlen(ending);
    return size >= length && memcmp(word + size - length, ending, (size_t)length) == 0;
}

typedef struct {
    const char *from, *to;
} Suffix;

/* Longest first. */
static const Suffix LONG_SUFFIXES[] = {
    {"ational", "ate"}, {"ization", "ize"}, {"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"},
    {"tional", "tion"}, {"biliti", "ble"},  {"entli", "ent"},   {"ousli", "ous"},   {"ation", "ate"},
    {"alism", "al"},    {"aliti", "al"},    {"iviti", "ive"},   {"enci", "ence"},   {"anci", "ance"},
    {"izer", "ize"},    {"alli", "al"},     {"ator", "ate"},    {"logi", "log"},    {"bli", "ble"},
    {"eli", "e"},       {NULL, NULL},
};
static const Suffix SHORT_SUFFIXES[] = {
    {"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ness", ""}, {"ful", ""},
    {NULL, NULL},
};
static const Suffix RESIDUAL_SUFFIXES[] = {
    {"ement", ""}, {"ance", ""}, {"ence", ""}, {"able", ""}, {"ible", ""}, {"ment", ""},  {"sion", "s"},
    {"tion", "t"}, {"ant", ""},  {"ent", ""},  {"ism", ""},  {"ate", ""},  {"iti", ""},   {"ous", ""},
    {"ive", ""},   {"ize", ""},  {"al", ""},   {"er", ""},   {"ic", ""},   {"ou", ""},    {NULL, NULL},
};

/* The longest of the suffixes that a word has, replaced where what is left has enough syllables. */
static int replaced(char *word, int size, const Suffix *suffixes, int least, int with)
{
    for (; suffixes->from; suffixes++)
        if (ends(word, size, suffixes->from)) {
            int to = (int)strlen(suffixes->to), root = size - (int)strlen(suffixes->from);
            char changed[LONGEST + 8];
            memcpy(changed, word, (size_t)root);
            memcpy(changed + root, suffixes->to, (size_t)to);
            if (measure(changed, with ? root + to : root) < least)
                return size;
            memcpy(word, changed, (size_t)(root + to));
            return root + to;
        }
    return size;
}

static int without_past(char *word, int size)
{
    if (ends(word, size, "eed"))
        return measure(word, size - 3) ? size - 1 : size;
    int cut = ends(word, size, "ed") ? 2 : ends(word, size, "ing") ? 3 : 0;
    if (!cut || !has_vowel(word, size - cut))
        return size;
    size -= cut;
    int longer = ends(word, size, "at") || ends(word, size, "bl") || ends(word, size, "iz");
    if (!longer) {
        if (size > 1 && word[size - 1] == word[size - 2] && strchr("aeioulsz", word[size - 1]) == NULL)
            return size - 1;
        longer = measure(word, size) == 1 && short_syllable(word, size);
    }
    if (longer)
        word[size++] = 'e';
    return size;
}

/* The size of the stem, which takes the place of the word. */
static int stem(char *word, int size)
{
    if (size <= 2 || strchr("abfhjkopqvwxz", word[size - 1]) != NULL)
        return size;
    if (ends(word, size, "sses") || ends(word, size, "ies"))
        size -= 2;
    else if (word[size - 1] == 's' && !ends(word, size, "ss") && !ends(word, size, "us"))
        size--;
    size = without_past(word, size);
    if (word[size - 1] == 'y' && has_vowel(word, size - 1))
        word[size - 1] = 'i';
    size = replaced(word, size, LONG_SUFFIXES, 1, 0);
    size = replaced(word, size, SHORT_SUFFIXES, 1, 0);
    size = replaced(word, size, RESIDUAL_SUFFIXES, 2, 1);
    if (word[size - 1] == 'e') {
        int syllables = measure(word, size - 1);
        if (syllables > 1 || (syllables == 1 && !short_syllable(word, size - 1)))
            size--;
    }
    return ends(word, size, "ll") && measure(word, size) > 1 ? size - 1 : size;
}
