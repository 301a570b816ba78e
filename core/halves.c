/* One vector as the store keeps it. */

#include "native.h"
#include <math.h>

#define SIGN 0x80000000u
#define LEAST_NORMAL (113u << 23) /* 2^-14: below it, halves lose digits one by one */
#define LAST_DIGIT 0x3f000000u    /* 0.5 as a single: what is added to it keeps the digits that such halves have */
#define SHIFTED ((112u << 23) - 0xfffu) /* the exponents of the two lie 112 apart; the rest rounds to the nearest */

/* A number in half precision, to the nearest and from the middle to the even one, as numpy rounds. It is below 65520. */
static inline uint16_t half(float number)
{
    uint32_t bits, small, normal;
    memcpy(&bits, &number, 4);
    uint32_t sign = bits & SIGN;
    bits ^= sign;
    float tiny;
    memcpy(&tiny, &bits, 4);
    tiny += 0.5f;
    memcpy(&small, &tiny, 4);
    small -= LAST_DIGIT;
    normal = (bits - SHIFTED + ((bits >> 13) & 1)) >> 13;
    return (uint16_t)((sign >> 16) | (bits < LEAST_NORMAL ? small : normal));
}

/* Whether a view is one row of `dim` single-precision numbers side by side. */
static int is_row(const Py_buffer *view, Py_ssize_t dim)
{
    return view->ndim == 2 && view->itemsize == 4 && view->format != NULL && strcmp(view->format, "f") == 0 &&
           view->shape[0] == 1 && view->shape[1] == dim && (dim < 2 || view->strides[1] == 4);
}

PyDoc_STRVAR(halved_doc,
             "halved(vector, dim, near, /)\n--\n\n"
             "One row of `dim` numbers in half precision, little-endian, as bytes. None where there is more to look at: what\n"
             "is not one row of single-precision numbers, and a row the square of whose length is not within `near` of 1.");

static PyObject *halved(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    if (!is_count("halved", count, 3))
        return NULL;
    Py_ssize_t dim = PyLong_AsSsize_t(given[1]);
    double near = dim == -1 && PyErr_Occurred() ? 0.0 : PyFloat_AsDouble(given[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!told(0.0 <= near && near < 1.0, "near: not a number from 0 to 1"))
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(given[0], &view, PyBUF_RECORDS_RO) < 0) {
        PyErr_Clear(); /* a list, or what lies in another order: for numpy to look at */
        Py_RETURN_NONE;
    }
    PyObject *row = NULL;
    if (is_row(&view, dim)) {
        const float *numbers = view.buf;
        double square = 0.0;
        for (Py_ssize_t i = 0; i < dim; i++)
            square += (double)numbers[i] * numbers[i];
        if (fabs(square - 1.0) <= near && (row = PyBytes_FromStringAndSize(NULL, 2 * dim)) != NULL) {
            uint16_t *to = (uint16_t *)PyBytes_AsString(row);
            for (Py_ssize_t i = 0; i < dim; i++)
                to[i] = half(numbers[i]);
        }
    }
    PyBuffer_Release(&view);
    if (row == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return row;
}

PyMethodDef halves_methods[] = {
    METHOD(halved),
    {NULL, NULL, 0, NULL},
};
