/* The module `skep._core`: each file brings its own functions. */

#include "core.h"

static int fill(PyObject *module)
{
    PyMethodDef *const parts[] = {codes_methods, generation_methods, build_methods, joining_methods};
    generation_start();
    build_start();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (PyModule_AddFunctions(module, parts[i]) < 0)
            return -1;
    return text_fill(module) < 0 || tables_fill(module) < 0 ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skep._core",
    .m_doc = "The loops that numpy cannot do in one pass.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module);
}
