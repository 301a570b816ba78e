"""Builds the compiled core, `skep._core`, where a C compiler is there, and words the README for a package index;
everything else stands in pyproject.toml.

The core is optional: without it skep does the same with numpy, only slower (`skep doctor` says which is in use).
`SKEP_NATIVE=0` in the environment leaves it out, which gives a wheel for every platform.
It uses the stable interface of Python 3.11: one wheel per platform serves every later version.
"""

import os
import re
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WINDOWS = sys.platform == "win32"
# A contracted product rounds once where numpy rounds twice.
FLAGS = (
    ["/O2", "/fp:precise"]
    if WINDOWS
    else ["-O3", "-g0", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
)
WANTED = os.environ.get("SKEP_NATIVE") != "0" and not sysconfig.get_config_var("Py_GIL_DISABLED")


class BuildCore(build_ext):
    """Compile the core; say so where that is impossible, and go on."""

    def run(self):
        """Build, and report what is missing afterwards."""
        super().run()
        for extension in self.extensions:
            if not os.path.exists(self.get_ext_fullpath(extension.name)):
                print(
                    "skep was installed WITHOUT its compiled core (no C compiler, or no headers of Python):"
                    " numpy does the same, only slower.",
                    file=sys.stderr,
                )


CORE = Extension(
    "skep._core",
    sorted(glob("core/*.c")),
    depends=sorted(glob("core/*.h")),
    py_limited_api=True,
    optional=os.environ.get("SKEP_NATIVE") != "1",
    extra_compile_args=FLAGS + os.environ.get("SKEP_CFLAGS", "").split(),
    extra_link_args=os.environ.get("SKEP_CFLAGS", "").split(),
    libraries=[] if WINDOWS else ["m"],
)

REPOSITORY = "https://github.com/skep-memory/skep/blob/main/"


def for_an_index(readme):
    """The README where no file lies beside it: without pictures, and with links that lead to the repository."""
    shown = re.sub(r"(?m)^!\[[^\]]*\]\([^)]*\)\n\n?", "", readme)
    return re.sub(r"\]\((?!https?:|#)", f"]({REPOSITORY}", shown)


with open("README.md", encoding="utf-8") as file:
    README = file.read()

setup(
    long_description=for_an_index(README),
    long_description_content_type="text/markdown",
    ext_modules=[CORE] if WANTED else [],
    cmdclass={"build_ext": BuildCore},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if WANTED else {},
)
