/* The loops, compiled once per generation of processors: the file that includes this one says what TARGET and NAMED
   are. */

TARGET static Py_ssize_t NAMED(first_round)(const Rows *rows, const Probe *probe, float bar, Py_ssize_t start,
                                            Py_ssize_t size, uint64_t *differing, int32_t *passed)
{
    const float *spread = rows->spread + start, *bias = rows->bias + start;
    uint8_t above[BLOCK];
    Py_ssize_t found = 0;
    memset(differing, 0, (size_t)size * sizeof *differing);
    for (Py_ssize_t word = 0; word < rows->words; word++) {
        const uint64_t *plane = rows->plane[word] + start, sign = probe->sign[0][word];
        for (Py_ssize_t i = 0; i < size; i++)
            differing[i] += ones(plane[i] ^ sign);
    }
    for (Py_ssize_t i = 0; i < size; i++)
        above[i] = agreement(differing[i], rows->words) * spread[i] + bias[i] * probe->bias_worth >= bar;
    if (rows->mask != NULL)
        for (Py_ssize_t i = 0; i < size; i++)
            above[i] &= rows->mask[start + i];
    for (Py_ssize_t i = 0; i < size; i += 8) {
        uint64_t eight = 0;
        memcpy(&eight, above + i, (size_t)(size - i < 8 ? size - i : 8));
        if (eight != 0) /* a third is passed over eight at a time */
            for (Py_ssize_t at = i; at < i + 8 && at < size; at++) {
                passed[found] = (int32_t)at;
                found += above[at];
            }
    }
    return found;
}

TARGET static Py_ssize_t NAMED(no_round)(const Rows *rows, const Probe *probe, Py_ssize_t start, Py_ssize_t size,
                                         uint64_t *differing, int32_t *passed)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < size; i++)
        if (rows->mask == NULL || rows->mask[start + i]) {
            differing[i] = 0;
            for (Py_ssize_t word = 0; word < rows->words; word++)
                differing[i] += ones(rows->plane[word][start + i] ^ probe->sign[0][word]);
            passed[found++] = (int32_t)i;
        }
    return found;
}

TARGET static void NAMED(second_round)(const Rows *rows, const Probe *probe, Py_ssize_t start, Py_ssize_t found,
                                       const uint64_t *differing, const int32_t *passed, float *estimates)
{
    for (Py_ssize_t i = 0; i < found; i++) {
        Py_ssize_t at = start + passed[i];
        float sum = agreement(differing[passed[i]], rows->words) * probe->worth[0];
        for (Py_ssize_t bit = 1; bit < probe->bits; bit++) {
            uint64_t more = 0;
            for (Py_ssize_t word = 0; word < rows->words; word++)
                more += ones(rows->plane[word][at] ^ probe->sign[bit][word]);
            sum += agreement(more, rows->words) * probe->worth[bit];
        }
        estimates[i] = sum * rows->spread[at] + rows->bias[at];
    }
}

TARGET static void NAMED(products)(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const int64_t *places,
                                   Py_ssize_t count, const float *query, const float *scale, float *out)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const int8_t *row = codes + places[i] * stride;
        float lanes[16] = {0}, sum = 0;
        Py_ssize_t d = 0;
        for (; d + 16 <= dim; d += 16)
            for (int lane = 0; lane < 16; lane++)
                lanes[lane] += (float)row[d + lane] * query[d + lane];
        for (; d < dim; d++)
            sum += (float)row[d] * query[d];
        for (int lane = 0; lane < 16; lane++)
            sum += lanes[lane];
        out[i] = sum * scale[places[i]];
    }
}

static const Loops NAMED(loops) = {NAMED(first_round), NAMED(no_round), NAMED(second_round), NAMED(products)};

#undef TARGET
#undef NAMED
