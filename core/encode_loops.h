/* The loops of `encode`, once per kind of processor. */

/* Times the Walsh-Hadamard matrix of its length, a power of two; sums of whole numbers, exact in any order. */
TARGET static void NAMED(mix)(float *data, Py_ssize_t size)
{
    Py_ssize_t half = 1;
    if (size >= 4) {
        for (Py_ssize_t i = 0; i < size; i += 4) {
            float a = data[i] + data[i + 1], b = data[i] - data[i + 1];
            float c = data[i + 2] + data[i + 3], d = data[i + 2] - data[i + 3];
            data[i] = a + c;
            data[i + 1] = b + d;
            data[i + 2] = a - c;
            data[i + 3] = b - d;
        }
        half = 4;
    }
    for (; half < size; half *= 2)
        for (Py_ssize_t start = 0; start < size; start += 2 * half) {
            float *restrict one = data + start, *restrict two = one + half;
            for (Py_ssize_t i = 0; i < half; i++) {
                float sum = one[i] + two[i], difference = one[i] - two[i];
                one[i] = sum;
                two[i] = difference;
            }
        }
}

/* A row of length 1 at most, in the turned axes. */
TARGET static void NAMED(turn_row)(float *row, const Turn *turn)
{
    Py_ssize_t dim = turn->dim, size = turn->size;
    for (Py_ssize_t d = 0; d < dim; d++)
        row[d] *= turn->unit;
    for (Py_ssize_t start = 0;; start = dim - size) {
        for (Py_ssize_t d = 0; d < dim; d++)
            row[d] = nearest(row[d]);
        float *restrict part = row + start;
        const float *restrict signs = turn->signs;
        for (Py_ssize_t d = 0; d < size; d++)
            part[d] *= signs[d];
        NAMED(mix)(part, size);
        for (Py_ssize_t d = 0; d < size; d++)
            part[d] *= turn->shrink;
        if (start + size == dim)
            break;
    }
    for (Py_ssize_t d = 0; d < dim; d++)
        row[d] *= turn->back;
}

/* A turned row as a byte and a half per dimension; returns its scale. */
TARGET static float NAMED(code_row)(float *restrict row, Py_ssize_t dim, int8_t *restrict high, uint8_t *restrict low)
{
    float lanes[16] = {0}, largest = 0;
    Py_ssize_t d = 0, half = (dim + 1) / 2;
    for (; d + 16 <= dim; d += 16)
        for (int lane = 0; lane < 16; lane++) {
            float size = fabsf(row[d + lane]);
            lanes[lane] = size > lanes[lane] ? size : lanes[lane];
        }
    for (; d < dim; d++)
        largest = fabsf(row[d]) > largest ? fabsf(row[d]) : largest;
    for (int lane = 0; lane < 16; lane++)
        largest = lanes[lane] > largest ? lanes[lane] : largest;
    float scale = largest / 127.0f;
    for (d = 0; d < dim; d++) {
        float whole = row[d] / scale, near = nearest(whole);
        float part = nearest((whole - near) * 15.0f) + 8.0f;
        high[d] = (int8_t)(int32_t)near;
        row[d] = part < 0.0f ? 0.0f : part > 15.0f ? 15.0f : part;
    }
    for (d = 0; d < half; d++)
        low[d] = (uint8_t)(int32_t)row[d];
    for (d = half; d < dim; d++)
        low[d - half] |= (uint8_t)((int32_t)row[d] << 4);
    return scale;
}

static const Coding NAMED(coding) = {NAMED(turn_row), NAMED(code_row)};

#undef TARGET
#undef NAMED
