/* The loops of choosing, compiled once per generation of processors, as in `loops.h`. */

TARGET static void NAMED(bins_of)(const float *values, Py_ssize_t count, float low, float scale, int32_t *bins)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        float place = (values[i] - low) * scale;
        place = place > 0 ? place : 0; /* and where it is not a number */
        bins[i] = (int32_t)(place < BINS - 1 ? place : BINS - 1);
    }
}

TARGET static void NAMED(extremes)(const float *values, Py_ssize_t count, float *least, float *most)
{
    float low = values[0], high = values[0];
    for (Py_ssize_t i = 1; i < count; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    *least = low;
    *most = high;
}

TARGET static Py_ssize_t NAMED(pick)(const float *values, const int32_t *bins, Py_ssize_t count, int32_t bin,
                                     uint32_t *picked)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (bins[i] == bin)
            memcpy(&picked[found++], &values[i], 4);
    return found;
}

TARGET static Py_ssize_t NAMED(keep)(const float *values, Py_ssize_t count, float least, const int64_t *slots,
                                     int64_t *out)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        out[found] = slots[i];
        found += values[i] >= least;
    }
    return found;
}

static const Loops NAMED(loops) = {NAMED(extremes), NAMED(bins_of), NAMED(pick), NAMED(keep)};

#undef TARGET
#undef NAMED
