/* The loops for processors that count the ones of eight words and multiply 32 pairs of 16 bits in one instruction.
   Everything is added and multiplied in the order of `scan_loops.h`. */

#include <immintrin.h>

/* Half the signs less those that differ, of eight rows. */
FOR_AVX512 static inline __m256 agreeing(const uint64_t *const *plane, const uint64_t *sign, Py_ssize_t words,
                                         Py_ssize_t at, __mmask8 there)
{
    __m512i differing = _mm512_setzero_si512();
    for (Py_ssize_t word = 0; word < words; word++) {
        __m512i own = _mm512_maskz_loadu_epi64(there, plane[word] + at);
        own = _mm512_xor_si512(own, _mm512_set1_epi64((long long)sign[word]));
        differing = _mm512_add_epi64(differing, _mm512_popcnt_epi64(own));
    }
    __m512i left = _mm512_sub_epi64(_mm512_set1_epi64(words * 32 - 1), differing);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm512_cvtepi64_epi8(left)));
}

FOR_AVX512 static inline __m256 ranking(const Rows *rows, __m256 agreed, __m256 bias_worth, Py_ssize_t at, __mmask8 there)
{
    __m256 bias = _mm256_mul_ps(_mm256_maskz_loadu_ps(there, rows->bias + at), bias_worth);
    return _mm256_add_ps(_mm256_mul_ps(agreed, _mm256_maskz_loadu_ps(there, rows->spread + at)), bias);
}

static inline __mmask8 eight_of(Py_ssize_t left)
{
    return left >= 8 ? 0xff : (__mmask8)((1u << left) - 1);
}

FOR_AVX512 static void avx512_rank(const Rows *rows, const Probe *probe, Py_ssize_t start, Py_ssize_t size,
                                   float *agreed, float *ranked)
{
    __m256 bias_worth = _mm256_set1_ps(probe->bias_worth);
    for (Py_ssize_t i = 0; i < size; i += 8) {
        __mmask8 there = eight_of(size - i);
        __m256 own = agreeing(rows->plane, probe->sign[0], rows->words, start + i, there);
        _mm256_mask_storeu_ps(agreed + i, there, own);
        _mm256_mask_storeu_ps(ranked + i, there, ranking(rows, own, bias_worth, start + i, there));
    }
}

/* `words` is known to the compiler where it is four: then nothing of the loop over them is left. */
FOR_AVX512 static inline Py_ssize_t passing(const Rows *rows, const Probe *probe, float bar, Py_ssize_t start,
                                            Py_ssize_t size, int32_t *passed, float *agreed, Py_ssize_t words)
{
    const __m256 bias_worth = _mm256_set1_ps(probe->bias_worth), least = _mm256_set1_ps(bar);
    __m256i here = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < size; i += 8) {
        __mmask8 there = eight_of(size - i);
        __m256 own = agreeing(rows->plane, probe->sign[0], words, start + i, there);
        __m256 ranked = ranking(rows, own, bias_worth, start + i, there);
        __mmask8 above = _mm256_mask_cmp_ps_mask(there, ranked, least, _CMP_GE_OQ);
        if (rows->mask != NULL) {
            __m128i flags = _mm_maskz_loadu_epi8(there, rows->mask + start + i);
            above &= (__mmask8)_mm_test_epi8_mask(flags, flags);
        }
        _mm256_storeu_si256((__m256i *)(void *)(passed + found), _mm256_maskz_compress_epi32(above, here));
        _mm256_storeu_ps(agreed + found, _mm256_maskz_compress_ps(above, own));
        found += __builtin_popcount(above);
        here = _mm256_add_epi32(here, _mm256_set1_epi32(8));
    }
    return found;
}

FOR_AVX512 static Py_ssize_t avx512_pass(const Rows *rows, const Probe *probe, float bar, Py_ssize_t start,
                                         Py_ssize_t size, int32_t *passed, float *agreed)
{
    if (rows->words == 4)
        return passing(rows, probe, bar, start, size, passed, agreed, 4);
    return passing(rows, probe, bar, start, size, passed, agreed, rows->words);
}

FOR_AVX512 static void avx512_weigh(const Rows *rows, const Probe *probe, Py_ssize_t start, Py_ssize_t found,
                                    const int32_t *passed, const float *agreed, float *estimates)
{
    for (Py_ssize_t i = 0; i < found; i += 8) {
        __mmask8 there = eight_of(found - i);
        __m256i at = _mm256_maskz_loadu_epi32(there, passed + i);
        __m512i own[MAX_WORDS];
        for (Py_ssize_t word = 0; word < rows->words; word++)
            own[word] = _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), there, at, rows->plane[word] + start, 8);
        __m256 sum = _mm256_setzero_ps();
        Py_ssize_t bit = 0;
        if (agreed != NULL)
            sum = _mm256_mul_ps(_mm256_maskz_loadu_ps(there, agreed + i), _mm256_set1_ps(probe->worth[bit++]));
        for (; bit < probe->bits; bit++) {
            __m512i differing = _mm512_setzero_si512();
            for (Py_ssize_t word = 0; word < rows->words; word++) {
                __m512i crossed = _mm512_xor_si512(own[word], _mm512_set1_epi64((long long)probe->sign[bit][word]));
                differing = _mm512_add_epi64(differing, _mm512_popcnt_epi64(crossed));
            }
            __m512i left = _mm512_sub_epi64(_mm512_set1_epi64(rows->words * 32 - 1), differing);
            __m256 more = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm512_cvtepi64_epi8(left)));
            sum = _mm256_add_ps(sum, _mm256_mul_ps(more, _mm256_set1_ps(probe->worth[bit])));
        }
        __m256 spread = _mm256_mmask_i32gather_ps(_mm256_setzero_ps(), there, at, rows->spread + start, 4);
        __m256 bias = _mm256_mmask_i32gather_ps(_mm256_setzero_ps(), there, at, rows->bias + start, 4);
        _mm256_mask_storeu_ps(estimates + i, there, _mm256_add_ps(_mm256_mul_ps(sum, spread), bias));
    }
}

FOR_AVX512 static void avx512_multiply(const int8_t *codes, Py_ssize_t stride, Py_ssize_t dim, const int64_t *places,
                                       int64_t base, Py_ssize_t count, const int16_t *query, int32_t *out)
{
    Py_ssize_t whole = dim / 64 * 64;
    __mmask64 rest = ((__mmask64)1 << (dim - whole)) - 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        const int8_t *row = codes + (places[i] - base) * stride;
        if (i + AHEAD < count)
            for (Py_ssize_t d = 0; d < dim; d += LINE)
                fetch(codes + (places[i + AHEAD] - base) * stride + d);
        __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
        for (Py_ssize_t d = 0; d < dim; d += 64) {
            __m512i own = d < whole ? _mm512_loadu_si512(row + d) : _mm512_maskz_loadu_epi8(rest, row + d);
            __m512i low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(own));
            __m512i high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(own, 1));
            even = _mm512_dpwssd_epi32(even, low, _mm512_loadu_si512(query + d));
            odd = _mm512_dpwssd_epi32(odd, high, _mm512_loadu_si512(query + d + 32));
        }
        out[i] = _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd));
    }
}

static const Loops avx512_loops = {avx512_rank, avx512_pass, avx512_weigh, avx512_multiply};
