/* Sort entries, equal ones as they stand: short runs by insertion, then two and two into one. Where they end up.

   Whoever includes this has a type `Entry`, and defines SORTED, the name of the function, BEFORE(one, other), whether one
   entry comes before another, and WITH, the further parameters that this takes, with a comma before each. */

#define RUN 8 /* so few are sorted by insertion */

static Entry *SORTED(Entry *from, Entry *to, Py_ssize_t count WITH)
{
    for (Py_ssize_t start = 0; start < count; start += RUN) {
        Py_ssize_t end = start + RUN < count ? start + RUN : count;
        for (Py_ssize_t i = start + 1; i < end; i++) {
            Entry moved = from[i];
            Py_ssize_t j = i;
            for (; j > start && BEFORE(&moved, &from[j - 1]); j--)
                from[j] = from[j - 1];
            from[j] = moved;
        }
    }
    for (Py_ssize_t width = RUN; width < count; width *= 2) {
        for (Py_ssize_t start = 0; start < count; start += 2 * width) {
            Py_ssize_t half = start + width < count ? start + width : count;
            Py_ssize_t end = half + width < count ? half + width : count;
            Py_ssize_t i = start, j = half;
            for (Py_ssize_t k = start; k < end; k++)
                to[k] = i < half && (j >= end || !BEFORE(&from[j], &from[i])) ? from[i++] : from[j++];
        }
        Entry *other = from;
        from = to;
        to = other;
    }
    return from;
}
