"""Reading a bank of an older form as it is: views stand in for the tables that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StandIns:
    """The views on one handle, which change when another process gives the file a newer form."""

    def __init__(self, views: Callable[[int], str]) -> None:
        self._views = views
        """What makes the temporary views that a file of some form needs."""
        self._form: int | None = None

    def begin(self, db: Any) -> None:
        """Make what the file needs on a handle that has none."""
        form: int = db.pragma("user_version")
        db.execute(self._views(form)).fetchall()
        self._form = form

    def follow(self, db: Any) -> bool:
        """Look at the form of the file, between two reads; whether it is another one, and so are the views."""
        if db.pragma("user_version") == self._form:
            return False
        for (name,) in db.execute("SELECT name FROM sqlite_temp_schema WHERE type = 'view'").fetchall():
            db.execute(f'DROP VIEW temp."{name}"')
        self.begin(db)
        return True
