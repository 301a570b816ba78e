/* The module: each part of the package brings its own functions. */

#include "native.h"

static int fill(PyObject *module)
{
    scan_start();
    if (PyModule_AddFunctions(module, sharing_methods) < 0)
        return -1;
    return PyModule_AddFunctions(module, scan_methods);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skep_native",
    .m_doc = "The loops that numpy cannot do in one pass.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_skep_native(void)
{
    return PyModuleDef_Init(&module);
}
