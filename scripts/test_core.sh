#!/usr/bin/env bash
# Run the tests of what the compiled core parses (index files, texts) under ASan and UBSan.
set -euo pipefail
python=$1
cc=${CC:-cc}
SKEP_NATIVE=1 SKEP_CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" \
  "$python" setup.py --quiet build --build-base build/sanitized --build-lib build/sanitized/lib
# Leaks are not looked for: the interpreter keeps memory until it ends.
LD_PRELOAD="$("$cc" -print-file-name=libasan.so) $("$cc" -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc SKEP_NATIVE=1 PYTHONPATH="$PWD/build/sanitized/lib" \
  "$python" -m pytest -p no:cacheprovider -m "not slow" tests/index tests/text "${@:2}"
