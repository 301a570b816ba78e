/* The loops of choosing, compiled once per generation of processors, as in `scan_loops.h`. */

TARGET static void NAMED(bins_of)(const float *values, Py_ssize_t count, float low, float scale, int32_t *bins)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        float place = (values[i] - low) * scale;
        place = place > 0 ? place : 0; /* and where it is not a number */
        bins[i] = (int32_t)(place < BINS - 1 ? place : BINS - 1);
    }
}

/* As whole numbers, which compilers compare many at a time. */
TARGET static void NAMED(extremes)(const float *values, Py_ssize_t count, float *least, float *most)
{
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], 4);
        bits ^= bits >> 31 & INT32_MAX;
        low = bits < low ? bits : low;
        high = bits > high ? bits : high;
    }
    low ^= low >> 31 & INT32_MAX;
    high ^= high >> 31 & INT32_MAX;
    memcpy(least, &low, 4);
    memcpy(most, &high, 4);
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
