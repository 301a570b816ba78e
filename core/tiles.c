/* Which rows of a segment may be near some of many others, by whole rows in small numbers. Where the processor multiplies
   tiles of those, or where few rows are asked for, that costs less than what `joining.c` saves by seeing less of them.
   The rows asked for come in steps of one size; what that may be off is taken from the bar, so that nothing near is
   lost. Without tiles, most pairs are out after half of their numbers: what the others could add is at most the product of
   the lengths that the two have there. */

#include "native.h"

#define NO_WAY "way: none that this processor knows; ask crossing first"

#if defined(WIDE) && defined(__linux__) && __GNUC__ >= 11
#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOR_TILES \
    __attribute__((target("avx2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vpopcntdq,amx-tile,amx-int8")))
#define INLINE inline __attribute__((always_inline)) /* compiled anew for both */
#define APART __attribute__((noinline)) /* its numbers have the registers to themselves */
/* What `_mm512_dpbusd_epi32` does; for that, compilers copy each sum from register to register. */
#define ADD_PRODUCTS(sum, bytes, numbers) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(numbers))
#define SIDE 16          /* rows of a tile */
#define DEEP 64          /* bytes of a row of it */
#define TILE (SIDE * DEEP)
#define PANEL 64         /* rows of a segment that are looked at together: they stay in the nearest cache */
#define MAX_DIM 4096
#define EIGHT 8          /* rows that are multiplied at once without tiles */
#define FAR (1 << 30)    /* more than any product */
#define SPARE 16         /* more than what a sum loses as a single number */
#define TILES_ASKED_FOR 0x1023, 18 /* of arch_prctl: leave to use the numbers of tiles, eight kilobytes per thread */

typedef struct {
    _Alignas(64) int8_t rows[PANEL * MAX_DIM];
    _Alignas(64) int32_t start[PANEL * SIDE]; /* what is missing to each row's bar, once for each of sixteen queries */
    float rest[PANEL]; /* how long each row is in what comes after the first look */
    _Alignas(64) int32_t sums[4 * SIDE * SIDE];
    const int8_t *codes[PANEL];
    float scale[PANEL];
} Panel;

/* Rows asked for: sixteen after sixteen, 64 numbers of each in a tile, four of each in turn. */
typedef struct {
    int8_t *tiles;
    int32_t *extra; /* what their sums have too much, where the numbers of rows are held larger by 128 */
    int32_t *ahead; /* the part of that which comes after the first look */
    float *rest;    /* how long they are there */
    const float *whole;
    Py_ssize_t count, deep; /* tiles one after another that hold a row */
    Py_ssize_t first;       /* how many of them are multiplied before the first look; with tiles, all */
} Sought;

/* The pairs of thirty-two rows and as many queries, in four tiles: a bit for each in which a sum is not below its bar. */
typedef int Multiply(Panel *panel, Py_ssize_t row, const Sought *sought, Py_ssize_t query);

typedef struct {
    const int8_t *codes;
    Py_ssize_t stride, dim;
    const float *scale;
    float step, off, low, least;
} Held;

typedef struct {
    int64_t *columns, *places;
    Py_ssize_t count;
} Pairs;

static int may_use; /* 0 until it was asked for, then 1, or -1 */

static int tiles_there(void)
{
    unsigned a, b, c, d;
    if (may_use == 0 && generation == AVX512) {
        int known = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3;
        may_use = known && syscall(SYS_arch_prctl, TILES_ASKED_FOR) == 0 ? 1 : -1;
    }
    return may_use == 1 && generation == AVX512;
}

/* The sum that a row has to reach beside a query, rounded down. */
static int32_t bar_of(const Held *held, float scale, int32_t square)
{
    float bar = (held->least / scale - held->low - sqrtf((float)square) * held->off) / held->step;
    if (!(scale > 0) || !(bar < FAR))
        return scale <= 0 && held->least <= 0 ? -FAR : FAR;
    return bar > -FAR ? (int32_t)floorf(bar) : -FAR;
}

/* One row, and the squares of its length before and after the first look. */
FOR_AVX512 static inline void take_row(const int8_t *codes, Py_ssize_t dim, Py_ssize_t first, int flipped, int8_t *row,
                                       int32_t squares[2])
{
    __m512i sums = _mm512_setzero_si512();
    squares[0] = 0;
    const __m512i flip = _mm512_set1_epi8((char)flipped);
    for (Py_ssize_t d = 0; d < dim; d += DEEP) {
        if (d == first) {
            squares[0] = _mm512_reduce_add_epi32(sums);
            sums = _mm512_setzero_si512();
        }
        __mmask64 there = dim - d < DEEP ? ((__mmask64)1 << (dim - d)) - 1 : ~(__mmask64)0;
        __m512i numbers = _mm512_maskz_loadu_epi8(there, codes + d);
        __m512i low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(numbers));
        __m512i high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(numbers, 1));
        sums = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(sums, low, low), high, high);
        _mm512_store_si512(row + d, _mm512_xor_si512(numbers, flip));
    }
    squares[first < dim] = _mm512_reduce_add_epi32(sums);
    if (first >= dim)
        squares[1] = 0;
}

FOR_AVX512 static void take_rows(const Held *held, const int64_t *places, Py_ssize_t count, const Sought *sought,
                                 int flipped, Panel *panel)
{
    Py_ssize_t width = sought->deep * DEEP;
    for (Py_ssize_t i = 0; i < PANEL; i++) {
        int32_t bar = FAR, squares[2] = {0, 0};
        if (i < count) {
            panel->codes[i] = held->codes + places[i] * held->stride;
            panel->scale[i] = held->scale[places[i]];
            take_row(panel->codes[i], held->dim, sought->first * DEEP, flipped, panel->rows + i * width, squares);
            bar = bar_of(held, panel->scale[i], squares[0] + squares[1]);
        }
        panel->rest[i] = sqrtf((float)squares[1]);
        _mm512_store_si512(panel->start + i * SIDE, _mm512_set1_epi32(-bar));
    }
}

FOR_TILES static void configure(void)
{
    _Alignas(64) uint8_t shape[64] = {1};
    for (int tile = 0; tile < 8; tile++) {
        shape[16 + 2 * tile] = DEEP;
        shape[48 + tile] = SIDE;
    }
    _tile_loadconfig(shape);
}

FOR_AVX512 static inline int reached(const int32_t *sums)
{
    __m512i all = _mm512_load_si512(sums);
    for (int row = 1; row < SIDE; row++)
        all = _mm512_and_si512(all, _mm512_load_si512(sums + row * SIDE));
    return _mm512_movepi32_mask(all) != 0xffff; /* a sign is missing */
}

FOR_AVX512 static int reached_in(const int32_t *sums)
{
    int found = 0;
    for (int tile = 0; tile < 4; tile++)
        found |= reached(sums + tile * SIDE * SIDE) << tile;
    return found;
}

FOR_TILES static int multiply_tiles(Panel *panel, Py_ssize_t row, const Sought *sought, Py_ssize_t query)
{
    Py_ssize_t deep = sought->deep, width = deep * DEEP;
    const int8_t *queries = sought->tiles + query / SIDE * deep * TILE, *rows = panel->rows + row * width;
    const int32_t *start = panel->start + row * SIDE;
    int32_t *sums = panel->sums;
    _tile_loadd(0, start, DEEP);
    _tile_loadd(1, start, DEEP);
    _tile_loadd(2, start + SIDE * SIDE, DEEP);
    _tile_loadd(3, start + SIDE * SIDE, DEEP);
    for (Py_ssize_t at = 0; at < deep; at++) {
        _tile_loadd(4, rows + at * DEEP, width);
        _tile_loadd(5, rows + SIDE * width + at * DEEP, width);
        _tile_loadd(6, queries + at * TILE, DEEP);
        _tile_loadd(7, queries + (deep + at) * TILE, DEEP);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sums, DEEP);
    _tile_stored(1, sums + SIDE * SIDE, DEEP);
    _tile_stored(2, sums + 2 * SIDE * SIDE, DEEP);
    _tile_stored(3, sums + 3 * SIDE * SIDE, DEEP);
    return reached_in(sums);
}

/* Add to the sums of eight rows beside thirty-two queries. They stand in memory in between, and in registers here. */
FOR_AVX512 static APART void add_wide(const int8_t *rows, Py_ssize_t width, const int8_t *queries, const int8_t *others,
                                      Py_ssize_t from, Py_ssize_t to, int32_t *sums)
{
#define EACH(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)
#define READ(i) __m512i one##i = _mm512_load_si512(sums + i * SIDE), other##i = _mm512_load_si512(sums + (SIDE + i) * SIDE);
#define ADD(i)                                                   \
    memcpy(&four, rows + i * width + at, sizeof four);           \
    both = _mm512_set1_epi32(four);                              \
    ADD_PRODUCTS(one##i, both, left);                            \
    ADD_PRODUCTS(other##i, both, right);
#define WRITE(i)                                                 \
    _mm512_store_si512(sums + i * SIDE, one##i);                 \
    _mm512_store_si512(sums + (SIDE + i) * SIDE, other##i);
    EACH(READ)
    for (Py_ssize_t at = from; at < to; at += 4) {
        __m512i left = _mm512_load_si512(queries + at * SIDE), right = _mm512_load_si512(others + at * SIDE), both;
        int32_t four;
        EACH(ADD)
    }
    EACH(WRITE)
}

/* Which of the sums of a part may still reach their bar. */
FOR_AVX512 static inline __mmask16 may_reach(const int32_t *sums, __m512i ahead, __m512 rest, float row_rest)
{
    __m512 reach = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_load_si512(sums), ahead));
    reach = _mm512_fmadd_ps(rest, _mm512_set1_ps(row_rest), reach);
    return _mm512_cmp_ps_mask(reach, _mm512_set1_ps(-SPARE), _CMP_GE_OQ);
}

FOR_AVX512 static int multiply_wide(Panel *panel, Py_ssize_t row, const Sought *sought, Py_ssize_t query)
{
    Py_ssize_t deep = sought->deep, width = deep * DEEP, first = sought->first * DEEP;
    const int8_t *queries = sought->tiles + query / SIDE * deep * TILE, *others = queries + deep * TILE;
    const int32_t *extra = sought->extra + query, *ahead = sought->ahead + query;
    const float *rest = sought->rest + query;
    int any = 0;
    for (Py_ssize_t eight = 0; eight < 2 * SIDE; eight += EIGHT) {
        const int8_t *rows = panel->rows + (row + eight) * width;
        int32_t *sums = panel->sums + eight / SIDE * 2 * SIDE * SIDE + eight % SIDE * SIDE;
        for (int i = 0; i < EIGHT; i++) {
            __m512i here = _mm512_load_si512(panel->start + (row + eight + i) * SIDE);
            _mm512_store_si512(sums + i * SIDE, _mm512_sub_epi32(here, _mm512_load_si512(extra)));
            _mm512_store_si512(sums + (SIDE + i) * SIDE, _mm512_sub_epi32(here, _mm512_load_si512(extra + SIDE)));
        }
        add_wide(rows, width, queries, others, 0, first, sums);
        int left = 0;
        for (int i = 0; i < EIGHT; i++) {
            float mine = panel->rest[row + eight + i];
            left |= may_reach(sums + i * SIDE, _mm512_load_si512(ahead), _mm512_load_ps(rest), mine);
            left |= may_reach(sums + (SIDE + i) * SIDE, _mm512_load_si512(ahead + SIDE), _mm512_load_ps(rest + SIDE), mine);
        }
        any |= left;
        if (left)
            add_wide(rows, width, queries, others, first, width, sums);
        else
            for (int i = 0; i < EIGHT; i++) {
                _mm512_store_si512(sums + i * SIDE, _mm512_set1_epi32(-1));
                _mm512_store_si512(sums + (SIDE + i) * SIDE, _mm512_set1_epi32(-1));
            }
    }
    return any ? reached_in(panel->sums) : 0;
}

/* Look at the pairs of a tile that reached their bars once more. */
static void put_down(const Held *held, const Sought *sought, const Panel *panel, const int32_t *sums, Py_ssize_t row,
                     Py_ssize_t query, const int64_t *places, Pairs *pairs)
{
    for (Py_ssize_t i = 0; i < SIDE; i++)
        for (Py_ssize_t j = 0; j < SIDE && query + j < sought->count; j++) {
            if (sums[i * SIDE + j] < 0)
                continue;
            const float *whole = sought->whole + (query + j) * held->dim;
            float reach = row_product(panel->codes[row + i], whole, held->dim) + held->low;
            if (reach * panel->scale[row + i] >= held->least) {
                pairs->columns[pairs->count] = query + j;
                pairs->places[pairs->count++] = places[row + i];
            }
        }
}

static INLINE Py_ssize_t look(const Held *held, const int64_t *places, Py_ssize_t rows, const Sought *sought,
                              Py_ssize_t room, int flipped, Multiply *multiply, Panel *panel, Pairs *pairs)
{
    Py_ssize_t done = 0;
    for (; done < rows && pairs->count + PANEL * sought->count <= room; done += PANEL) {
        Py_ssize_t here = rows - done < PANEL ? rows - done : PANEL;
        take_rows(held, places + done, here, sought, flipped, panel);
        for (Py_ssize_t query = 0; query < sought->count; query += 2 * SIDE)
            for (Py_ssize_t row = 0; row < here; row += 2 * SIDE) {
                int found = multiply(panel, row, sought, query);
                for (int tile = 0; found >> tile; tile++)
                    if (found >> tile & 1)
                        put_down(held, sought, panel, panel->sums + tile * SIDE * SIDE, row + tile / 2 * SIDE,
                                 query + tile % 2 * SIDE, places + done, pairs);
            }
    }
    return done < rows ? done : rows;
}

FOR_TILES static Py_ssize_t look_by_tiles(const Held *held, const int64_t *places, Py_ssize_t rows, const Sought *sought,
                                          Py_ssize_t room, Panel *panel, Pairs *pairs)
{
    configure();
    Py_ssize_t done = look(held, places, rows, sought, room, 0, multiply_tiles, panel, pairs);
    _tile_release();
    return done;
}

FOR_AVX512 static Py_ssize_t look_widely(const Held *held, const int64_t *places, Py_ssize_t rows, const Sought *sought,
                                         Py_ssize_t room, Panel *panel, Pairs *pairs)
{
    return look(held, places, rows, sought, room, 0x80, multiply_wide, panel, pairs);
}

/* The queries in tiles; those that fill up the last two are nothing. */
static void lay_out(const int8_t *seen, Py_ssize_t dim, const Sought *sought)
{
    for (Py_ssize_t query = 0; query < sought->count; query++) {
        int32_t square = 0;
        for (Py_ssize_t d = 0; d < dim; d++) {
            int8_t number = seen[query * dim + d];
            sought->tiles[(query / SIDE * sought->deep + d / DEEP) * TILE + d % DEEP / 4 * DEEP + query % SIDE * 4 + d % 4] =
                number;
            sought->extra[query] += 128 * number;
            if (d >= sought->first * DEEP) {
                sought->ahead[query] += 128 * number;
                square += number * number;
            }
        }
        sought->rest[query] = sqrtf((float)square);
    }
}
#endif

PyDoc_STRVAR(crossing_doc, "crossing()\n--\n\n"
             "Which ways of `cross` there are: 0 none, 1 for few queries, 2 tiles too. The first call asks the system for leave.");

static PyObject *crossing(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self, (void)given;
    if (!is_count("crossing", count, 0))
        return NULL;
#ifdef SIDE
    return PyLong_FromLong(generation != AVX512 ? 0 : tiles_there() ? 2 : 1);
#else
    return PyLong_FromLong(0);
#endif
}

PyDoc_STRVAR(cross_doc,
             "cross(codes, scale, places, seen, numbers, queries, columns, found, way, /)\n--\n\n"
             "Put pairs of a query and one of some rows that may be near into two arrays. Says how many rows were looked\n"
             "at, fewer than all when there is no more room, and how many pairs were found.\n"
             "seen: the queries in steps; numbers: step, off, low and least, see `joining.py`; way: one that `crossing` knows.");

static PyObject *cross(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("cross", count, 9))
        return NULL;
#ifdef SIDE
    long way = PyLong_AsLong(given[8]);
    if (PyErr_Occurred() || !told(generation == AVX512 && (way == 1 || (way == 2 && tiles_there())), NO_WAY))
        return NULL;
    Buffers buffers = {.count = 0};
    PyObject *answer = NULL;
    void *room_for = NULL;
    Py_buffer *codes = array(&buffers, given[0], "codes", 2, 1, 0);
    Py_buffer *scale = codes ? array(&buffers, given[1], "scale", 1, 4, 0) : NULL;
    Py_buffer *places = scale ? array(&buffers, given[2], "places", 1, 8, 0) : NULL;
    Py_buffer *seen = places ? array(&buffers, given[3], "seen", 2, 1, 0) : NULL;
    Py_buffer *numbers = seen ? array(&buffers, given[4], "numbers", 1, 4, 0) : NULL;
    Py_buffer *queries = numbers ? array(&buffers, given[5], "queries", 2, 4, 0) : NULL;
    Py_buffer *columns = queries ? array(&buffers, given[6], "columns", 1, 8, 1) : NULL;
    Py_buffer *found = columns ? array(&buffers, given[7], "found", 1, 8, 1) : NULL;
    if (found == NULL)
        goto end;
    Py_ssize_t dim = codes->shape[1], rows = places->shape[0], asked = queries->shape[0];
    Py_ssize_t room = columns->shape[0] < found->shape[0] ? columns->shape[0] : found->shape[0];
    if (!long_enough(scale, "scale", codes->shape[0]) || !long_enough(numbers, "numbers", 4) ||
        !whole(seen, "seen") || !whole(queries, "queries") ||
        !told(dim >= 1 && dim <= MAX_DIM, "codes: no dimension, or too many") ||
        !told(queries->shape[1] == dim, "queries: of another dimension") ||
        !told(seen->shape[0] == asked && seen->shape[1] == dim, "seen: of another shape") ||
        !told(rows == 0 || room >= PANEL * asked, "columns: no room for the pairs of sixty-four rows") ||
        !all_within(places->buf, rows, 0, codes->shape[0]))
        goto end;
    const float *number = numbers->buf;
    Py_ssize_t deep = (dim + DEEP - 1) / DEEP;
    Sought sought = {.whole = queries->buf, .count = asked, .deep = deep, .first = way == 2 ? deep : deep - deep / 2};
    size_t filled = (size_t)(asked + 2 * SIDE - 1) / (2 * SIDE) * 2 * SIDE, bytes = filled * (size_t)sought.deep * DEEP;
    room_for = PyMem_Calloc(sizeof(Panel) + bytes + 3 * filled * sizeof *sought.extra + 64, 1);
    if (room_for == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Panel *panel = (Panel *)(((uintptr_t)room_for + 63) & ~(uintptr_t)63);
    Held held = {codes->buf, codes->strides[0], dim, scale->buf, number[0], number[1], number[2], number[3]};
    Pairs pairs = {columns->buf, found->buf, 0};
    Py_ssize_t done;
    Py_BEGIN_ALLOW_THREADS
    sought.tiles = (int8_t *)(panel + 1);
    sought.extra = (int32_t *)(sought.tiles + bytes);
    sought.ahead = sought.extra + filled;
    sought.rest = (float *)(sought.ahead + filled);
    lay_out(seen->buf, dim, &sought);
    done = (way == 2 ? look_by_tiles : look_widely)(&held, places->buf, rows, &sought, room, panel, &pairs);
    Py_END_ALLOW_THREADS
    answer = Py_BuildValue("nn", done, pairs.count);
end:
    PyMem_Free(room_for);
    release(&buffers);
    return answer;
#else
    (void)given;
    PyErr_SetString(PyExc_ValueError, NO_WAY);
    return NULL;
#endif
}

PyMethodDef tiles_methods[] = {
    METHOD(crossing),
    METHOD(cross),
    {NULL, NULL, 0, NULL},
};
