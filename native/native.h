/* What every part of the package needs: the stable interface of Python 3.11, so that one build serves every later
   version, and arrays whose shape was looked at before a loop runs over them. */

#ifndef SKEP_NATIVE_H
#define SKEP_NATIVE_H

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
    if (PyObject_GetBuffer(from, view, writable ? PyBUF_STRIDES | PyBUF_WRITABLE : PyBUF_STRIDES) < 0)
        return NULL;
    buffers->count++;
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

/* The functions of each part, and what it does before the first call. */
extern PyMethodDef scan_methods[];
extern PyMethodDef sharing_methods[];
void scan_start(void);

#endif
