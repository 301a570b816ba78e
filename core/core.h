/* What every part of the package needs: the stable interface of Python 3.11, so that one build serves every later
   version, and arrays whose shape was looked at before a loop runs over them. */

#ifndef SKEP_CORE_H
#define SKEP_CORE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Buffers that were asked for, to be given back together. */
typedef struct {
    Py_buffer held[16];
    int count;
} Buffers;

static inline void release(Buffers *buffers)
{
    while (buffers->count > 0)
        PyBuffer_Release(&buffers->held[--buffers->count]);
}

/* An array whose last axis lies close; refuses other shapes and sizes, so that no loop leaves its memory. */
static inline Py_buffer *array(Buffers *buffers, PyObject *from, const char *name, int axes, Py_ssize_t item, int writable)
{
    Py_buffer *view = &buffers->held[buffers->count];
    if (PyObject_GetBuffer(from, view, writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO) < 0)
        return NULL;
    buffers->count++;
    if (view->format != NULL && strchr(view->format, 'O') != NULL) { /* numbers in their place would be no objects */
        PyErr_Format(PyExc_ValueError, "%s: an array of objects, not of numbers", name);
        return NULL;
    }
    if (view->ndim != axes || view->itemsize != item ||
        (view->shape[axes - 1] > 1 && view->strides[axes - 1] != item)) {
        PyErr_Format(PyExc_ValueError, "%s: not an array of %d axes of %zd bytes side by side", name, axes, item);
        return NULL;
    }
    return view;
}

static inline int long_enough(const Py_buffer *view, const char *name, Py_ssize_t count)
{
    if (view->shape[0] >= count)
        return 1;
    PyErr_Format(PyExc_ValueError, "%s: %zd entries where %zd are needed", name, view->shape[0], count);
    return 0;
}

/* Whether an array lies close along all of its axes. */
static inline int whole(const Py_buffer *view, const char *name)
{
    Py_ssize_t stride = view->itemsize;
    for (int axis = view->ndim - 1; axis >= 0; axis--) {
        if (view->shape[axis] > 1 && view->strides[axis] != stride) {
            PyErr_Format(PyExc_ValueError, "%s: not all side by side", name);
            return 0;
        }
        stride *= view->shape[axis];
    }
    return 1;
}

static inline int told(int right, const char *what)
{
    if (!right)
        PyErr_SetString(PyExc_ValueError, what);
    return right;
}

/* Gives back what was held; None, or the error that was set. */
static inline PyObject *finished(Buffers *buffers, int sound)
{
    release(buffers);
    if (!sound)
        return NULL;
    Py_RETURN_NONE;
}

/* An entry of a table of functions: one that takes its arguments in a row. */
#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, name##_doc}

static inline int is_count(const char *name, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments", name, wanted);
    return count == wanted;
}

/* Whether `count` numbers, less a base, are places of something that has `room` of them. */
static inline int all_within(const int64_t *places, Py_ssize_t count, int64_t base, Py_ssize_t room)
{
    int outside = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        outside |= (uint64_t)places[i] - (uint64_t)base >= (uint64_t)room;
    if (outside)
        PyErr_Format(PyExc_IndexError, "places: not all of them lie among %zd from %lld on", room, (long long)base);
    return !outside;
}

/* Fetch memory that will be read soon: not into the nearest cache, which waits for few lines at a time, but into the one
   behind it. */
#define LINE 64
#if defined(__GNUC__)
#define fetch(address) __builtin_prefetch((const void *)(address), 0, 2)
#else
#define fetch(address) ((void)(address))
#endif

/* The lowest place of a word at which a bit is set; there is one. */
#if defined(__GNUC__)
#define first_one(word) __builtin_ctzll(word)
#else
static inline int first_one(uint64_t word)
{
    int at = 0;
    while (!(word >> at & 1))
        at++;
    return at;
}
#endif

/* The generations of processors that loops are compiled for, and the one in use. */
#if defined(__x86_64__) && defined(__GNUC__)
#define WIDE
#define FOR_AVX2 __attribute__((target("avx2,fma,popcnt")))
#define FOR_AVX512 \
    __attribute__((target("avx2,fma,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vpopcntdq")))
#endif
enum { PLAIN, AVX2, AVX512, GENERATIONS };
extern int generation;

/* The functions of each part, and what it does before the first call. */
extern PyMethodDef codes_methods[], generation_methods[], build_methods[], joining_methods[];
void generation_start(void);
void build_start(void);
int text_fill(PyObject *module);
int tables_fill(PyObject *module);

#endif
