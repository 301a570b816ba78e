/* Neighbour join: which rows of a segment may be near some of many others. `src/skep/index/neighbour_join.py` says why
   no near pair is lost, and scores what is found here with the whole codes.

   Rows are seen along some axes, in seven bits each, sixteen rows side by side. */

#include "core.h"
#include <math.h>

#ifdef WIDE
#include <immintrin.h>
#endif
#if defined(__GNUC__)
#define INLINE inline __attribute__((always_inline)) /* compiled anew for every processor */
#else
#define INLINE inline
#endif

#define LANES 16      /* rows side by side */
#define FOUR 4        /* rows that are seen at once */
#define MAX_DIM 4096
#define MAX_AXES 1024
#define TOP 63        /* a number of a row lies between -TOP and TOP: sums of two products fit sixteen bits */

/* The rows that are asked for. */
typedef struct {
    const int8_t *seen;   /* [count][axes] */
    const int32_t *start; /* what a sum starts with, as the numbers of rows are held larger by TOP */
    const float *worth;   /* [count][3]: the unseen length, 1 and the bar, in units of the numbers */
    const float *whole;   /* [count][dim] */
    Py_ssize_t count;
} Asked;

/* Sixteen rows. */
typedef struct {
    uint8_t bytes[LANES * MAX_AXES]; /* four numbers of each row in turn */
    float unit[LANES], unseen[LANES], slack[LANES];
    const int8_t *codes[LANES];
    float scale[LANES];
    int16_t wide[LANES * (MAX_DIM + 1)]; /* the rows themselves */
    int32_t along[LANES * MAX_AXES];     /* and along every axis */
} Group;

typedef struct {
    Py_ssize_t query;
    uint32_t lanes; /* one bit each */
} Hit;

/* A segment, and the axes its rows are seen along. */
typedef struct {
    const int8_t *codes;
    Py_ssize_t stride, dim;
    const float *scale;
    const int16_t *axes; /* [half the dimension][axes][2] */
    Py_ssize_t count;    /* of axes */
    float unit;          /* what one step along an axis is, in codes */
    float bent;          /* how far the axes may be from orthonormal ones */
    float low;           /* how far codes may be from what they stand for */
    float loose;         /* what the rows asked for may be off */
    float longest;       /* the length of the longest of them along the axes */
} Lens;

typedef struct {
    /* See some rows, and put each into a lane. */
    void (*see)(const Lens *lens, const int64_t *places, int count, Group *group);
    /* The queries that some of the sixteen rows may be near. */
    Py_ssize_t (*sweep)(const Group *group, Py_ssize_t axes, const Asked *asked, Hit *hits);
    float (*product)(const int8_t *codes, const float *query, Py_ssize_t dim);
} Ways;

/* FOUR rows along every axis. */
typedef void Project(const int16_t *rows, Py_ssize_t half, const int16_t *axes, Py_ssize_t count, int32_t *out);

/* What is known of a row before and after it was seen. */
static INLINE void widen(const Lens *lens, Py_ssize_t place, Group *group, int lane)
{
    const int8_t *codes = lens->codes + place * lens->stride;
    Py_ssize_t width = (lens->dim + 1) / 2 * 2;
    int16_t *row = group->wide + lane * width;
    row[width - 1] = 0;
    for (Py_ssize_t d = 0; d < lens->dim; d++)
        row[d] = codes[d];
    group->codes[lane] = codes;
    group->scale[lane] = lens->scale[place];
}

static INLINE void shorten(const Lens *lens, Group *group, int lane)
{
    const int8_t *codes = group->codes[lane];
    const int32_t *along = group->along + lane * lens->count;
    float squares[16] = {0}, wrongs[16] = {0}, seen = 0, off = 0, scale = group->scale[lane];
    int32_t length = 0, most = 0;
    for (Py_ssize_t d = 0; d < lens->dim; d++)
        length += codes[d] * codes[d];
    for (Py_ssize_t j = 0; j < lens->count; j++) {
        int32_t here = along[j] < 0 ? -along[j] : along[j];
        most = here > most ? here : most;
    }
    float step = most > 0 ? (float)most / TOP : 1, inverse = 1 / step;
    for (Py_ssize_t j = 0; j < lens->count; j += 16) {
        uint8_t bytes[16];
        for (int i = 0; i < 16; i++) {
            float exact = (float)along[j + i];
            int number = (int)(exact * inverse + (TOP + 0.5f));
            float wrong = exact - (float)(number - TOP) * step;
            squares[i] += exact * exact;
            wrongs[i] += wrong * wrong;
            bytes[i] = (uint8_t)number;
        }
        for (int i = 0; i < 16; i += 4)
            memcpy(group->bytes + (j + i) * LANES + 4 * lane, bytes + i, 4);
    }
    for (int i = 0; i < 16; i++) {
        seen += squares[i];
        off += wrongs[i];
    }
    float square = (float)length;
    float rest = square - seen * lens->unit * lens->unit + 2 * lens->bent * square;
    group->unit[lane] = scale * lens->unit * step;
    group->unseen[lane] = scale * sqrtf(rest > 0 ? rest : 0);
    group->slack[lane] = scale * (lens->low + sqrtf(off) * lens->unit * lens->longest + sqrtf(square) * lens->loose);
}

static INLINE void see(const Lens *lens, const int64_t *places, int count, Group *group, Project *project)
{
    Py_ssize_t half = (lens->dim + 1) / 2;
    for (int lane = 0; lane < count; lane++)
        widen(lens, places[lane], group, lane);
    for (int lane = count; lane % FOUR; lane++)
        memset(group->wide + lane * 2 * half, 0, (size_t)half * 4);
    for (int lane = 0; lane < count; lane += FOUR)
        project(group->wide + lane * 2 * half, half, lens->axes, lens->count, group->along + lane * lens->count);
    for (int lane = 0; lane < count; lane++)
        shorten(lens, group, lane);
    for (int lane = count; lane < LANES; lane++)
        group->unit[lane] = group->unseen[lane] = group->slack[lane] = 0;
}

static void plain_project(const int16_t *rows, Py_ssize_t half, const int16_t *axes, Py_ssize_t count, int32_t *out)
{
    memset(out, 0, (size_t)count * FOUR * sizeof *out);
    for (Py_ssize_t d = 0; d < half; d++, axes += 2 * count)
        for (int row = 0; row < FOUR; row++) {
            const int16_t *here = rows + 2 * (row * half + d);
            for (Py_ssize_t j = 0; j < count; j++)
                out[row * count + j] += here[0] * axes[2 * j] + here[1] * axes[2 * j + 1];
        }
}

static void plain_see(const Lens *lens, const int64_t *places, int count, Group *group)
{
    see(lens, places, count, group, plain_project);
}

static Py_ssize_t plain_sweep(const Group *group, Py_ssize_t axes, const Asked *asked, Hit *hits)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t q = 0; q < asked->count; q++) {
        const int8_t *seen = asked->seen + q * axes;
        const float *worth = asked->worth + 3 * q;
        int32_t sums[LANES];
        uint32_t lanes = 0;
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] = asked->start[q];
        for (Py_ssize_t at = 0; at < axes; at += 4)
            for (int lane = 0; lane < LANES; lane++)
                for (int i = 0; i < 4; i++)
                    sums[lane] += group->bytes[(at * LANES) + 4 * lane + i] * seen[at + i];
        for (int lane = 0; lane < LANES; lane++)
            lanes |= (uint32_t)((float)sums[lane] * group->unit[lane] + group->unseen[lane] * worth[0] +
                                    group->slack[lane] * worth[1] >= worth[2]) << lane;
        if (lanes)
            hits[found++] = (Hit){q, lanes};
    }
    return found;
}

static float plain_product(const int8_t *codes, const float *query, Py_ssize_t dim)
{
    float sum = 0;
    for (Py_ssize_t d = 0; d < dim; d++)
        sum += (float)codes[d] * query[d];
    return sum;
}

#ifdef WIDE

static inline int32_t four(const void *bytes)
{
    int32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

FOR_AVX2 static float avx2_product(const int8_t *codes, const float *query, Py_ssize_t dim)
{
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    Py_ssize_t d = 0;
    for (; d + 32 <= dim; d += 32)
        for (int part = 0; part < 4; part++) {
            __m128i eight = _mm_loadl_epi64((const void *)(codes + d + 8 * part));
            sums[part] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)),
                                         _mm256_loadu_ps(query + d + 8 * part), sums[part]);
        }
    float lanes[8], sum = plain_product(codes + d, query + d, dim - d);
    _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    for (int lane = 0; lane < 8; lane++)
        sum += lanes[lane];
    return sum;
}

FOR_AVX512 static float avx512_product(const int8_t *codes, const float *query, Py_ssize_t dim)
{
    __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    Py_ssize_t d = 0;
    for (; d + 64 <= dim; d += 64)
        for (int part = 0; part < 4; part++) {
            __m128i sixteen = _mm_loadu_si128((const void *)(codes + d + 16 * part));
            sums[part] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen)),
                                         _mm512_loadu_ps(query + d + 16 * part), sums[part]);
        }
    sums[0] = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
    return _mm512_reduce_add_ps(sums[0]) + plain_product(codes + d, query + d, dim - d);
}

FOR_AVX2 static void avx2_project(const int16_t *rows, Py_ssize_t half, const int16_t *axes, Py_ssize_t count, int32_t *out)
{
    for (Py_ssize_t j = 0; j < count; j += 8) {
        __m256i sums[FOUR] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                              _mm256_setzero_si256()};
        const int16_t *here = axes + 2 * j;
        for (Py_ssize_t d = 0; d < half; d++, here += 2 * count) {
            __m256i along = _mm256_loadu_si256((const void *)here);
            for (int row = 0; row < FOUR; row++) {
                __m256i both = _mm256_set1_epi32(four(rows + 2 * (row * half + d)));
                sums[row] = _mm256_add_epi32(sums[row], _mm256_madd_epi16(both, along));
            }
        }
        for (int row = 0; row < FOUR; row++)
            _mm256_storeu_si256((void *)(out + row * count + j), sums[row]);
    }
}

FOR_AVX2 static void avx2_see(const Lens *lens, const int64_t *places, int count, Group *group)
{
    see(lens, places, count, group, avx2_project);
}

FOR_AVX2 static Py_ssize_t avx2_sweep(const Group *group, Py_ssize_t axes, const Asked *asked, Hit *hits)
{
    const __m256i ones = _mm256_set1_epi16(1);
    Py_ssize_t found = 0;
    for (Py_ssize_t q = 0; q < asked->count; q++) {
        const int8_t *seen = asked->seen + q * axes;
        const float *worth = asked->worth + 3 * q;
        __m256i sums[2] = {_mm256_set1_epi32(asked->start[q]), _mm256_set1_epi32(asked->start[q])};
        for (Py_ssize_t at = 0; at < axes; at += 4) {
            __m256i numbers = _mm256_set1_epi32(four(seen + at));
            for (int side = 0; side < 2; side++) {
                __m256i rows = _mm256_loadu_si256((const void *)(group->bytes + at * LANES + 32 * side));
                sums[side] = _mm256_add_epi32(sums[side], _mm256_madd_epi16(_mm256_maddubs_epi16(rows, numbers), ones));
            }
        }
        uint32_t lanes = 0;
        for (int side = 0; side < 2; side++) {
            __m256 reach = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[side]), _mm256_loadu_ps(group->unit + 8 * side));
            reach = _mm256_fmadd_ps(_mm256_loadu_ps(group->unseen + 8 * side), _mm256_set1_ps(worth[0]), reach);
            reach = _mm256_fmadd_ps(_mm256_loadu_ps(group->slack + 8 * side), _mm256_set1_ps(worth[1]), reach);
            reach = _mm256_cmp_ps(reach, _mm256_set1_ps(worth[2]), _CMP_GE_OQ);
            lanes |= (uint32_t)_mm256_movemask_ps(reach) << (8 * side);
        }
        if (lanes)
            hits[found++] = (Hit){q, lanes};
    }
    return found;
}

FOR_AVX512 static void avx512_project(const int16_t *rows, Py_ssize_t half, const int16_t *axes, Py_ssize_t count,
                                  int32_t *out)
{
    for (Py_ssize_t j = 0; j < count; j += 32) {
        __m512i sums[FOUR][2];
        int both_sides = j + 32 <= count;
        const int16_t *here = axes + 2 * j;
        for (int row = 0; row < FOUR; row++)
            sums[row][0] = sums[row][1] = _mm512_setzero_si512();
        for (Py_ssize_t d = 0; d < half; d++, here += 2 * count) {
            __m512i one = _mm512_loadu_si512(here), other = both_sides ? _mm512_loadu_si512(here + 32) : one;
            for (int row = 0; row < FOUR; row++) {
                __m512i both = _mm512_set1_epi32(four(rows + 2 * (row * half + d)));
                sums[row][0] = _mm512_dpwssd_epi32(sums[row][0], both, one);
                sums[row][1] = _mm512_dpwssd_epi32(sums[row][1], both, other);
            }
        }
        for (int row = 0; row < FOUR; row++) {
            _mm512_storeu_si512(out + row * count + j, sums[row][0]);
            if (both_sides)
                _mm512_storeu_si512(out + row * count + j + 16, sums[row][1]);
        }
    }
}

FOR_AVX512 static void avx512_see(const Lens *lens, const int64_t *places, int count, Group *group)
{
    see(lens, places, count, group, avx512_project);
}

FOR_AVX512 static inline uint32_t avx512_lanes(__m512i sum, __m512 unit, __m512 unseen, __m512 slack, const float *worth)
{
    __m512 reach = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), unit);
    reach = _mm512_fmadd_ps(unseen, _mm512_set1_ps(worth[0]), reach);
    reach = _mm512_fmadd_ps(slack, _mm512_set1_ps(worth[1]), reach);
    return _mm512_cmp_ps_mask(reach, _mm512_set1_ps(worth[2]), _CMP_GE_OQ);
}

FOR_AVX512 static Py_ssize_t avx512_sweep(const Group *group, Py_ssize_t axes, const Asked *asked, Hit *hits)
{
    const __m512 unit = _mm512_loadu_ps(group->unit), unseen = _mm512_loadu_ps(group->unseen);
    const __m512 slack = _mm512_loadu_ps(group->slack);
    Py_ssize_t found = 0;
    if (axes == 64) { /* the rows stay in registers */
        __m512i rows[16];
        for (int at = 0; at < 16; at++)
            rows[at] = _mm512_loadu_si512(group->bytes + 64 * at);
        for (Py_ssize_t q = 0; q < asked->count; q++) {
            const int8_t *seen = asked->seen + q * 64;
            __m512i one = _mm512_set1_epi32(asked->start[q]), other = _mm512_setzero_si512();
#pragma GCC unroll 8
            for (int at = 0; at < 16; at += 2) {
                one = _mm512_dpbusd_epi32(one, rows[at], _mm512_set1_epi32(four(seen + 4 * at)));
                other = _mm512_dpbusd_epi32(other, rows[at + 1], _mm512_set1_epi32(four(seen + 4 * at + 4)));
            }
            uint32_t lanes =
                avx512_lanes(_mm512_add_epi32(one, other), unit, unseen, slack, asked->worth + 3 * q);
            if (lanes)
                hits[found++] = (Hit){q, lanes};
        }
        return found;
    }
    for (Py_ssize_t q = 0; q < asked->count; q++) {
        const int8_t *seen = asked->seen + q * axes;
        __m512i sum = _mm512_set1_epi32(asked->start[q]);
        for (Py_ssize_t at = 0; at < axes; at += 4)
            sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(group->bytes + at * LANES),
                                      _mm512_set1_epi32(four(seen + at)));
        uint32_t lanes = avx512_lanes(sum, unit, unseen, slack, asked->worth + 3 * q);
        if (lanes)
            hits[found++] = (Hit){q, lanes};
    }
    return found;
}
#endif

static const Ways every_way[] = {
    {plain_see, plain_sweep, plain_product},
#ifdef WIDE
    {avx2_see, avx2_sweep, avx2_product},
    {avx512_see, avx512_sweep, avx512_product},
#endif
};

PyDoc_STRVAR(join_doc,
             "join(codes, scale, places, axes, numbers, seen, worth, queries, columns, found, /)\n--\n\n"
             "Put pairs of a query and one of some rows that may be near into two arrays. Says how many rows were looked\n"
             "at, fewer than all when there is no more room, and how many pairs were found.\n"
             "numbers: unit, bent, low, loose, longest and least, see `neighbour_join.py`.");

static PyObject *join(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("join", count, 10))
        return NULL;
    Buffers buffers = {.count = 0};
    PyObject *answer = NULL;
    int32_t *start = NULL;
    Hit *hits = NULL;
    Group *group = NULL;
    Py_buffer *codes = array(&buffers, given[0], "codes", 2, 1, 0);
    Py_buffer *scale = codes ? array(&buffers, given[1], "scale", 1, 4, 0) : NULL;
    Py_buffer *places = scale ? array(&buffers, given[2], "places", 1, 8, 0) : NULL;
    Py_buffer *axes = places ? array(&buffers, given[3], "axes", 3, 2, 0) : NULL;
    Py_buffer *numbers = axes ? array(&buffers, given[4], "numbers", 1, 4, 0) : NULL;
    Py_buffer *seen = numbers ? array(&buffers, given[5], "seen", 2, 1, 0) : NULL;
    Py_buffer *worth = seen ? array(&buffers, given[6], "worth", 2, 4, 0) : NULL;
    Py_buffer *queries = worth ? array(&buffers, given[7], "queries", 2, 4, 0) : NULL;
    Py_buffer *columns = queries ? array(&buffers, given[8], "columns", 1, 8, 1) : NULL;
    Py_buffer *found = columns ? array(&buffers, given[9], "found", 1, 8, 1) : NULL;
    if (found == NULL)
        goto end;
    Py_ssize_t dim = codes->shape[1], rows = places->shape[0], asked = queries->shape[0];
    Py_ssize_t room = columns->shape[0] < found->shape[0] ? columns->shape[0] : found->shape[0];
    if (!long_enough(scale, "scale", codes->shape[0]) || !long_enough(numbers, "numbers", 6) ||
        !whole(axes, "axes") || !whole(seen, "seen") || !whole(worth, "worth") || !whole(queries, "queries") ||
        !told(dim >= 1 && dim <= MAX_DIM, "codes: no dimension, or too many") ||
        !told(axes->shape[0] == (dim + 1) / 2 && axes->shape[2] == 2, "axes: of another dimension") ||
        !told(axes->shape[1] >= 16 && axes->shape[1] <= MAX_AXES && axes->shape[1] % 16 == 0,
              "axes: not a multiple of 16, or too many") ||
        !told(seen->shape[0] == asked && seen->shape[1] == axes->shape[1], "seen: of another shape") ||
        !told(worth->shape[0] == asked && worth->shape[1] == 3, "worth: of another shape") ||
        !told(queries->shape[1] == dim, "queries: of another dimension") ||
        !told(rows == 0 || room >= LANES * asked, "columns: no room for the pairs of sixteen rows"))
        goto end;
    for (Py_ssize_t i = 0; i < rows; i++) {
        int64_t at = ((const int64_t *)places->buf)[i];
        if (at < 0 || at >= codes->shape[0]) {
            PyErr_Format(PyExc_IndexError, "places: no row %zd among %zd", (Py_ssize_t)at, codes->shape[0]);
            goto end;
        }
    }
    start = PyMem_Malloc((size_t)(asked ? asked : 1) * sizeof *start);
    hits = PyMem_Malloc((size_t)(asked ? asked : 1) * sizeof *hits);
    group = PyMem_Malloc(sizeof *group);
    if (start == NULL || hits == NULL || group == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    const float *number = numbers->buf;
    const Ways *way = &every_way[generation];
    Lens lens = {codes->buf, codes->strides[0], dim, scale->buf, axes->buf, axes->shape[1],
                 number[0], number[1], number[2], number[3], number[4]};
    Asked wanted = {seen->buf, start, worth->buf, queries->buf, asked};
    const int64_t *place = places->buf;
    int64_t *column = columns->buf, *row = found->buf;
    Py_ssize_t done = 0, pairs = 0;
    float least = number[5];
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t q = 0; q < asked; q++) {
        start[q] = 0;
        for (Py_ssize_t j = 0; j < lens.count; j++)
            start[q] -= TOP * wanted.seen[q * lens.count + j];
    }
    for (; done < rows && pairs + LANES * asked <= room; done += LANES) {
        int size = rows - done < LANES ? (int)(rows - done) : LANES;
        way->see(&lens, place + done, size, group);
        Py_ssize_t here = way->sweep(group, lens.count, &wanted, hits);
        for (Py_ssize_t i = 0; i < here; i++)
            for (int lane = 0; lane < size; lane++)
                if (hits[i].lanes >> lane & 1) {
                    const float *query = wanted.whole + hits[i].query * dim;
                    float reach = way->product(group->codes[lane], query, dim) + lens.low;
                    if (reach * group->scale[lane] >= least) {
                        column[pairs] = hits[i].query;
                        row[pairs++] = place[done + lane];
                    }
                }
    }
    Py_END_ALLOW_THREADS
    answer = Py_BuildValue("nn", done < rows ? done : rows, pairs);
end:
    PyMem_Free(start);
    PyMem_Free(hits);
    PyMem_Free(group);
    release(&buffers);
    return answer;
}

PyMethodDef joining_methods[] = {
    METHOD(join),
    {NULL, NULL, 0, NULL},
};
