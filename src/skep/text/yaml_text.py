"""YAML from outside: what it says, or why it cannot be read. Called for hive manifests and lists of questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from skep.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_yaml(text: str, what: str) -> Any:
    """The value of a document.

    Args:
        text: The document.
        what: What needs YAML, for the error that names the extra.

    Raises:
        ValueError: It is no YAML that may be read; the message is one line.
        MissingExtraError: The extra is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(what, "yaml") from error
    try:
        # an alias may stand for a list of aliases, and so on: nine lines become a billion values
        tokens: Iterator[Any] = cast("Any", yaml).scan(text)
        alias = next((one for one in tokens if isinstance(one, yaml.AliasToken)), None)
        if alias is None:
            return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nested too deep to be read") from None
    # a date that is none, a number without end, `!!int x`: the reader lets Python's own errors out
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    line = alias.start_mark.line + 1
    raise ValueError(f"line {line}: *{alias.value} repeats another part; write that part out instead")
