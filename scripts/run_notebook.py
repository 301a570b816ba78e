"""Run the cells of a notebook and keep what they print: python scripts/run_notebook.py examples/first_steps.ipynb

Without Jupyter: each cell of code runs in one namespace, and its standard output becomes the output of the cell.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of this run."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("".join(cell["source"]), f"cell {count}", "exec"), namespace)
            text = said.getvalue().splitlines(keepends=True)
            outputs = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


if __name__ == "__main__":
    page = Path(sys.argv[1])
    made = run(json.loads(page.read_text(encoding="utf-8")))
    page.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
