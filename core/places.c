/* Whether a file is still where it was opened. */

#include "native.h"

#ifndef _WIN32 /* an open file keeps its name there, so that nobody asks */
#include <errno.h>
#include <sys/stat.h>

PyDoc_STRVAR(lies_at_doc,
             "lies_at(path, device, number, /)\n--\n\n"
             "Whether a name, as bytes, leads to the file of that number on that device. Where it cannot be looked at, it is\n"
             "taken to; where it leads nowhere, it does not.");

static PyObject *lies_at(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    (void)self;
    char *path;
    if (!is_count("lies_at", count, 3) || PyBytes_AsStringAndSize(given[0], &path, NULL) < 0)
        return NULL;
    uint64_t device = PyLong_AsUnsignedLongLongMask(given[1]), number = PyLong_AsUnsignedLongLongMask(given[2]);
    if (PyErr_Occurred())
        return NULL;
    struct stat found;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = stat(path, &found) < 0 ? errno : 0;
    Py_END_ALLOW_THREADS
    int there = failed ? failed != ENOENT && failed != ENOTDIR
                       : (uint64_t)found.st_dev == device && (uint64_t)found.st_ino == number;
    return PyBool_FromLong(there);
}
#endif

PyMethodDef places_methods[] = {
#ifndef _WIN32
    METHOD(lies_at),
#endif
    {NULL, NULL, 0, NULL},
};
