/* The products of one word piece with those of a query, compiled once per generation of processors: the file that
   includes this one says what TARGET and NAMED are. */

TARGET static void NAMED(multiply)(const int8_t *row, const int16_t *asked, Py_ssize_t count, Py_ssize_t dim,
                                   int32_t *out, int32_t *own)
{
    int32_t sum = 0;
    for (Py_ssize_t d = 0; d < dim; d++)
        sum += (int32_t)row[d] * row[d];
    *own = sum;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int16_t *query = asked + i * dim;
        sum = 0;
        for (Py_ssize_t d = 0; d < dim; d++)
            sum += (int32_t)row[d] * query[d];
        out[i] = sum;
    }
}

#undef TARGET
#undef NAMED
