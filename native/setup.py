"""Builds the extension against the stable interface of Python 3.11: one wheel per platform serves later versions."""

import sys
from glob import glob

from setuptools import Extension, setup

# Contracted products would round once where numpy rounds twice.
FLAGS = (
    ["/O2", "/fp:precise"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
)

setup(
    ext_modules=[
        Extension(
            "skep_native",
            sorted(glob("*.c")),
            depends=sorted(glob("*.h")),
            py_limited_api=True,
            extra_compile_args=FLAGS,
            libraries=[] if sys.platform == "win32" else ["m"],
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
