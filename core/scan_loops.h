/* The loops, compiled once per generation of processors: the file that includes this one says what TARGET and NAMED
   are. */

TARGET static void NAMED(rank)(const Rows *rows, const Probe *probe, Py_ssize_t start, Py_ssize_t size, float *agreed,
                               float *ranked)
{
    const float *spread = rows->spread + start, *bias = rows->bias + start;
    uint64_t differing[BLOCK];
    memset(differing, 0, (size_t)size * sizeof *differing);
    for (Py_ssize_t word = 0; word < rows->words; word++) {
        const uint64_t *plane = rows->plane[word] + start, sign = probe->sign[0][word];
        for (Py_ssize_t i = 0; i < size; i++)
            differing[i] += ones(plane[i] ^ sign);
    }
    for (Py_ssize_t i = 0; i < size; i++)
        agreed[i] = agreement(differing[i], rows->words);
    for (Py_ssize_t i = 0; i < size; i++)
        ranked[i] = agreed[i] * spread[i] + bias[i] * probe->bias_worth;
}

TARGET static Py_ssize_t NAMED(pass)(const Rows *rows, const Probe *probe, float bar, Py_ssize_t start, Py_ssize_t size,
                                     int32_t *passed, float *agreed)
{
    float every[BLOCK], ranked[BLOCK];
    uint8_t above[BLOCK];
    Py_ssize_t found = 0;
    NAMED(rank)(rows, probe, start, size, every, ranked);
    for (Py_ssize_t i = 0; i < size; i++)
        above[i] = ranked[i] >= bar;
    if (rows->mask != NULL)
        for (Py_ssize_t i = 0; i < size; i++)
            above[i] &= rows->mask[start + i] != 0;
    for (Py_ssize_t i = 0; i < size; i += 8) {
        uint64_t eight = 0;
        memcpy(&eight, above + i, (size_t)(size - i < 8 ? size - i : 8));
        if (eight != 0) /* a third is passed over eight at a time */
            for (Py_ssize_t at = i; at < i + 8 && at < size; at++) {
                passed[found] = (int32_t)at;
                agreed[found] = every[at];
                found += above[at];
            }
    }
    return found;
}

TARGET static void NAMED(weigh)(const Rows *rows, const Probe *probe, Py_ssize_t start, Py_ssize_t found,
                                const int32_t *passed, const float *agreed, float *estimates)
{
    for (Py_ssize_t i = 0; i < found; i++) {
        Py_ssize_t at = start + passed[i];
        float sum = agreed == NULL ? 0 : agreed[i] * probe->worth[0];
        for (Py_ssize_t bit = agreed == NULL ? 0 : 1; bit < probe->bits; bit++) {
            uint64_t more = 0;
            for (Py_ssize_t word = 0; word < rows->words; word++)
                more += ones(rows->plane[word][at] ^ probe->sign[bit][word]);
            sum += agreement(more, rows->words) * probe->worth[bit];
        }
        estimates[i] = sum * rows->spread[at] + rows->bias[at];
    }
}

TARGET static void NAMED(multiply)(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const int64_t *places,
                                   int64_t base, Py_ssize_t count, const int16_t *query, int32_t *out)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const int8_t *row = codes + (places[i] - base) * stride;
        if (i + AHEAD < count)
            for (Py_ssize_t d = 0; d < dim; d += LINE)
                fetch(codes + (places[i + AHEAD] - base) * stride + d);
        int32_t sum = 0;
        for (Py_ssize_t d = 0; d < dim; d++)
            sum += (int32_t)row[d] * query[d];
        out[i] = sum;
    }
}

static const Loops NAMED(loops) = {NAMED(rank), NAMED(pass), NAMED(weigh), NAMED(multiply)};

#undef TARGET
#undef NAMED
