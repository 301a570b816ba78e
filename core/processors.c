/* The generations of processors that loops are compiled for, and the choice of one when the module is loaded. */

#include "core.h"

static const char *const NAMES[GENERATIONS] = {"plain", "avx2", "avx512"};

int generation = PLAIN;
static int newest = PLAIN;

void generation_start(void)
{
#ifdef WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt"))
        newest = AVX2;
    if (newest == AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vpopcntdq"))
        newest = AVX512;
#endif
    generation = newest;
}

PyDoc_STRVAR(generations_doc, "generations()\n--\n\nThe generations of loops this processor can run, newest last.");

static PyObject *generations(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    PyObject *names = PyTuple_New(newest + 1);
    for (int i = 0; names != NULL && i <= newest; i++) {
        PyObject *name = PyUnicode_FromString(NAMES[i]);
        if (name == NULL || PyTuple_SetItem(names, i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

PyDoc_STRVAR(use_doc, "use(name, /)\n--\n\nUse the loops of a generation from now on; the newest is used by itself.");

static PyObject *use(PyObject *self, PyObject *name)
{
    (void)self;
    for (int i = 0; PyUnicode_Check(name) && i <= newest; i++)
        if (PyUnicode_CompareWithASCIIString(name, NAMES[i]) == 0) {
            generation = i;
            Py_RETURN_NONE;
        }
    PyErr_Format(PyExc_ValueError, "%R: not one of generations()", name);
    return NULL;
}

PyMethodDef generation_methods[] = {
    {"generations", generations, METH_NOARGS, generations_doc},
    {"use", use, METH_O, use_doc},
    {NULL, NULL, 0, NULL},
};
