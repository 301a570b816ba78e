/* The loops over the numbers of a word piece, compiled once per generation of processors: the file that includes this
   one says what TARGET and NAMED are. */

/* A row in two bytes each; the product with itself. */
TARGET static int32_t NAMED(widen)(const int8_t *row, Py_ssize_t dim, int16_t *into)
{
    int32_t own = 0;
    for (Py_ssize_t d = 0; d < dim; d++) {
        into[d] = row[d];
        own += (int32_t)row[d] * row[d];
    }
    return own;
}

/* The products of a row with those of a query. */
TARGET static void NAMED(multiply)(const int16_t *row, const int16_t *asked, Py_ssize_t count, Py_ssize_t dim,
                                   int32_t *out)
{
    for (Py_ssize_t i = 0; i < count; i += TOGETHER, asked += TOGETHER * dim) {
        const int16_t *second = asked + dim, *third = second + dim, *fourth = third + dim;
        int32_t a = 0, b = 0, c = 0, e = 0;
        for (Py_ssize_t d = 0; d < dim; d++) {
            a += (int32_t)row[d] * asked[d];
            b += (int32_t)row[d] * second[d];
            c += (int32_t)row[d] * third[d];
            e += (int32_t)row[d] * fourth[d];
        }
        out[i] = a;
        out[i + 1] = b;
        out[i + 2] = c;
        out[i + 3] = e;
    }
}

static const Loops NAMED(loops) = {NAMED(widen), NAMED(multiply)};

#undef TARGET
#undef NAMED
