/* The loops over fine codes, compiled once per generation of processors, as in `scan_loops.h`. */

/* A row in steps of the lower half of its code. */
TARGET static void NAMED(unpack)(const int8_t *high, const uint8_t *low, Py_ssize_t dim, int16_t *steps)
{
    Py_ssize_t half = dim - dim / 2;
    for (Py_ssize_t d = 0; d < half; d++)
        steps[d] = (int16_t)(high[d] * PARTS + (low[d] & 15) - MIDDLE);
    for (Py_ssize_t d = half; d < dim; d++)
        steps[d] = (int16_t)(high[d] * PARTS + (low[d - half] >> 4) - MIDDLE);
}

TARGET static double NAMED(multiply)(const int16_t *steps, const double *query, Py_ssize_t dim)
{
    double lanes[16] = {0}, sum = 0;
    Py_ssize_t d = 0;
    for (; d + 16 <= dim; d += 16)
        for (int lane = 0; lane < 16; lane++)
            lanes[lane] += (double)steps[d + lane] * query[d + lane];
    for (; d < dim; d++)
        sum += (double)steps[d] * query[d];
    for (int lane = 0; lane < 16; lane++)
        sum += lanes[lane];
    return sum;
}

/* The products of the rows of a matrix with a vector. */
TARGET static void NAMED(project)(const float *rows, Py_ssize_t stride, Py_ssize_t count, Py_ssize_t dim,
                                  const float *vector, float *out)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const float *row = (const float *)((const char *)rows + i * stride);
        float lanes[64] = {0}, sum = 0;
        Py_ssize_t d = 0;
        for (; d + 64 <= dim; d += 64)
            for (int lane = 0; lane < 64; lane++)
                lanes[lane] += row[d + lane] * vector[d + lane];
        for (; d < dim; d++)
            sum += row[d] * vector[d];
        for (int lane = 0; lane < 64; lane++)
            sum += lanes[lane];
        out[i] = sum;
    }
}

static const Loops NAMED(loops) = {NAMED(unpack), NAMED(multiply), NAMED(project)};

#undef TARGET
#undef NAMED
