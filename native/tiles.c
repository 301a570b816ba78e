/* Which rows of a segment may be near some of many others, where the processor multiplies tiles of small numbers: whole
   rows then cost less than what `joining.c` saves by seeing less of them. The rows asked for come in steps of one
   size; what that may be off is taken from the bar, so that nothing near is lost. */

#include "native.h"

#if defined(WIDE) && defined(__linux__) && __GNUC__ >= 11
#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOR_TILES __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-int8")))
#define SIDE 16          /* rows of a tile */
#define DEEP 64          /* bytes of a row of it */
#define TILE (SIDE * DEEP)
#define PANEL 64         /* rows of a segment that are looked at together: they stay in the nearest cache */
#define MAX_DIM 4096
#define FAR (1 << 30)    /* more than any product */
#define TILES_ASKED_FOR 0x1023, 18 /* of arch_prctl: leave to use the numbers of tiles, eight kilobytes per thread */

typedef struct {
    _Alignas(64) int8_t rows[PANEL * MAX_DIM];
    _Alignas(64) int32_t start[PANEL * SIDE]; /* what is missing to each row's bar, once for each of sixteen queries */
    _Alignas(64) int32_t sums[4 * SIDE * SIDE];
    const int8_t *codes[PANEL];
    float scale[PANEL];
} Panel;

/* Rows asked for: sixteen after sixteen, 64 numbers of each in a tile, four of each in turn. */
typedef struct {
    const int8_t *tiles;
    const float *whole;
    Py_ssize_t count, deep; /* tiles one after another that hold a row */
} Sought;

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

FOR_TILES static void take_rows(const Held *held, const int64_t *places, Py_ssize_t count, Py_ssize_t width, Panel *panel)
{
    for (Py_ssize_t i = 0; i < PANEL; i++) {
        int32_t bar = FAR, square = 0;
        if (i < count) {
            const int8_t *codes = panel->codes[i] = held->codes + places[i] * held->stride;
            for (Py_ssize_t d = 0; d < held->dim; d++)
                square += codes[d] * codes[d];
            memcpy(panel->rows + i * width, codes, (size_t)held->dim);
            panel->scale[i] = held->scale[places[i]];
            bar = bar_of(held, panel->scale[i], square);
        }
        for (int j = 0; j < SIDE; j++)
            panel->start[i * SIDE + j] = -bar;
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

/* The pairs of thirty-two rows and as many queries: whether any of a tile's sums is not below its bar. */
FOR_TILES static inline void multiply(const int8_t *rows, Py_ssize_t width, const int32_t *start, const int8_t *queries,
                                      Py_ssize_t deep, int32_t *sums)
{
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
}

FOR_TILES static inline int reached(const int32_t *sums)
{
    __m512i all = _mm512_load_si512(sums);
    for (int row = 1; row < SIDE; row++)
        all = _mm512_and_si512(all, _mm512_load_si512(sums + row * SIDE));
    return _mm512_movepi32_mask(all) != 0xffff; /* a sign is missing */
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

FOR_TILES static Py_ssize_t look(const Held *held, const int64_t *places, Py_ssize_t rows, const Sought *sought,
                                 Py_ssize_t room, Panel *panel, Pairs *pairs)
{
    Py_ssize_t width = sought->deep * DEEP, done = 0;
    configure();
    for (; done < rows && pairs->count + PANEL * sought->count <= room; done += PANEL) {
        Py_ssize_t here = rows - done < PANEL ? rows - done : PANEL;
        take_rows(held, places + done, here, width, panel);
        for (Py_ssize_t query = 0; query < sought->count; query += 2 * SIDE)
            for (Py_ssize_t row = 0; row < here; row += 2 * SIDE) {
                multiply(panel->rows + row * width, width, panel->start + row * SIDE,
                         sought->tiles + query / SIDE * sought->deep * TILE, sought->deep, panel->sums);
                for (int tile = 0; tile < 4; tile++)
                    if (reached(panel->sums + tile * SIDE * SIDE))
                        put_down(held, sought, panel, panel->sums + tile * SIDE * SIDE, row + tile / 2 * SIDE,
                                 query + tile % 2 * SIDE, places + done, pairs);
            }
    }
    _tile_release();
    return done < rows ? done : rows;
}

/* The queries in tiles; those that fill up the last two are nothing. */
static void lay_out(const int8_t *seen, Py_ssize_t count, Py_ssize_t dim, Py_ssize_t deep, int8_t *tiles)
{
    for (Py_ssize_t query = 0; query < count; query++)
        for (Py_ssize_t d = 0; d < dim; d++)
            tiles[(query / SIDE * deep + d / DEEP) * TILE + d % DEEP / 4 * DEEP + query % SIDE * 4 + d % 4] =
                seen[query * dim + d];
}
#endif

PyDoc_STRVAR(has_tiles_doc, "has_tiles(/)\n--\n\nWhether `cross` may be called; the first call asks the system for leave.");

static PyObject *has_tiles(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self, (void)given;
    if (!is_count("has_tiles", count, 0))
        return NULL;
#ifdef SIDE
    return PyBool_FromLong(tiles_there());
#else
    Py_RETURN_FALSE;
#endif
}

PyDoc_STRVAR(cross_doc,
             "cross(codes, scale, places, seen, numbers, queries, columns, found, /)\n--\n\n"
             "Put pairs of a query and one of some rows that may be near into two arrays. Says how many rows were looked\n"
             "at, fewer than all when there is no more room, and how many pairs were found.\n"
             "seen: the queries in steps; numbers: step, off, low and least, see `joining.py`.");

static PyObject *cross(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("cross", count, 8))
        return NULL;
#ifdef SIDE
    if (!told(tiles_there(), "this processor has no tiles; ask has_tiles first"))
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
    Sought sought = {NULL, queries->buf, asked, (dim + DEEP - 1) / DEEP};
    size_t laid_out = (size_t)((asked + 2 * SIDE - 1) / (2 * SIDE) * 2 * sought.deep) * TILE;
    room_for = PyMem_Calloc(sizeof(Panel) + laid_out + 64, 1);
    if (room_for == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Panel *panel = (Panel *)(((uintptr_t)room_for + 63) & ~(uintptr_t)63);
    Held held = {codes->buf, codes->strides[0], dim, scale->buf, number[0], number[1], number[2], number[3]};
    Pairs pairs = {columns->buf, found->buf, 0};
    Py_ssize_t done;
    Py_BEGIN_ALLOW_THREADS
    lay_out(seen->buf, asked, dim, sought.deep, (int8_t *)(panel + 1));
    sought.tiles = (int8_t *)(panel + 1);
    done = look(&held, places->buf, rows, &sought, room, panel, &pairs);
    Py_END_ALLOW_THREADS
    answer = Py_BuildValue("nn", done, pairs.count);
end:
    PyMem_Free(room_for);
    release(&buffers);
    return answer;
#else
    (void)given;
    PyErr_SetString(PyExc_ValueError, "this processor has no tiles; ask has_tiles first");
    return NULL;
#endif
}

PyMethodDef tiles_methods[] = {
    METHOD(has_tiles),
    METHOD(cross),
    {NULL, NULL, 0, NULL},
};
