"""Named tuples that cost next to nothing to define.

`typing.NamedTuple` compiles every annotation and a constructor for each class: a fifth of a millisecond, and there are
twenty of them on the way to the first answer.

>>> class Point(NamedTuple):
...     across: int
...     up: int = 0
>>> Point(1), Point(up=2, across=1).up, Point(1, 2)._replace(up=3)
(Point(across=1, up=0), 2, Point(across=1, up=3))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    class _Fields(type):
        """Makes the annotations of a class its fields."""

        def __new__(meta, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
            fields = tuple(space.get("__annotations__", ()))
            if not fields and bases != (tuple,):
                raise TypeError(
                    f"{name}: a named tuple needs fields, and `from __future__ import annotations`"
                )
            space["_field_defaults"] = {field: space[field] for field in fields if field in space}
            space |= {field: _tuplegetter(place, None) for place, field in enumerate(fields)}
            space |= {"__slots__": (), "_fields": fields, "__match_args__": fields}
            return super().__new__(meta, name, bases, space)

    class NamedTuple(tuple, metaclass=_Fields):
        """What every named tuple can do, as those of the standard library do it."""

        def __new__(cls, *values: Any, **named: Any) -> Any:  # noqa: D102
            if named or len(values) != len(cls._fields):
                values = _completed(cls, values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values: Any) -> Any:
            return cls(*values)

        def _replace(self, **named: Any) -> Any:
            return type(self)(**{**self._asdict(), **named})

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    def _completed(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The values of all fields, by place, by name or by default."""
        rest = cls._fields[len(values) :]
        wrong = named.keys() - set(rest)
        missing = [field for field in rest if field not in named and field not in cls._field_defaults]
        if len(values) > len(cls._fields) or wrong or missing:
            raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
        return (*values, *(named[field] if field in named else cls._field_defaults[field] for field in rest))


__all__ = ["NamedTuple"]
