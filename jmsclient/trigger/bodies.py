"""From a message's body to the type that a handler's parameter is annotated with.

Planned once, when the trigger is declared: what type hints cannot be resolved is refused there. A body that does not fit raises
MessageFormatError naming the field, never showing its value (a log has no bodies); the trigger treats that as a fatal error.
It must not know what a trigger is.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

from jmsclient.errors import ConfigurationError, MessageFormatError

Convert = Callable[[Any], Any]

WRITTEN: dict[Any, Callable[[str], Any]] = {
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
    Decimal: Decimal,
    UUID: UUID,
}
"""Types that JSON and a MAP can hold as text only, and how it is read."""


GATHERED = (tuple, set, frozenset)


class _MisfitError(Exception):
    """A value does not fit, `text` says why; `path` is where it is, from the outside, and is put together on the way there.
    `inside`: the value is of the right kind, but for something in it."""

    def __init__(self, text: str, *, inside: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.inside = inside
        self.path: list[str | int] = []


def converter(hint: Any) -> Convert | None:
    """From a body to a value of the annotated type; None where it is no type that a body can become. Raises ConfigurationError for
    a dataclass whose own annotations cannot be resolved."""
    if hint in (str, bytes, dict):
        return lambda body: _plain(body, hint)
    if get_origin(hint) is dict or (dataclasses.is_dataclass(hint) and isinstance(hint, type)):
        return _whole(_fit(hint, {}), hint)
    if not isinstance(hint, type):
        return None
    msgspec = sys.modules.get("msgspec")  # a Struct can only exist where msgspec was imported
    if msgspec is not None and issubclass(hint, msgspec.Struct):
        return _foreign(lambda values: msgspec.convert(values, hint), msgspec.ValidationError, str)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(hint, pydantic.BaseModel):
        validate = hint.model_validate  # type: ignore[attr-defined]  # a pydantic model has it
        return _foreign(validate, pydantic.ValidationError, _without_values)
    return None


def _plain(body: Any, wanted: type) -> Any:
    """str, bytes or dict; a dict is also read from a text that holds a JSON object."""
    if isinstance(body, wanted):
        return body
    if wanted is bytes and isinstance(body, str):
        return body.encode()
    if isinstance(body, str | bytes) and wanted is dict:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:  # the latter of one that is nested too deeply
            raise MessageFormatError(f"the body is no JSON object: {error}") from error
        if isinstance(value, dict):
            return value
        raise MessageFormatError(
            f"the body is a JSON {'null' if value is None else type(value).__name__}; the handler takes an object"
        )
    raise MessageFormatError(f"the body is a {_name(type(body))}; the handler takes {wanted.__name__}")


def _foreign(convert: Convert, refused: type[Exception], words: Callable[[Any], str]) -> Convert:
    """By a library that names the field itself."""

    def into(body: Any) -> Any:
        try:
            return convert(_plain(body, dict))
        except refused as error:
            raise MessageFormatError(f"the body does not fit: {words(error)}") from None  # its text may have values in it

    return into


def _without_values(error: Any) -> str:
    """What pydantic found, without what it found it in."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"field {'.'.join(map(str, one['loc']))!r}: {one['msg']}" for one in found)


# -- dataclasses, and what is in them -----------------------------------------------------------------------------------


def _whole(fits: Convert, hint: Any) -> Convert:
    """Of a body; with the field named where something does not fit."""
    of = f" of {hint.__name__}" if isinstance(hint, type) and get_origin(hint) is None else ""

    def into(body: Any) -> Any:
        try:
            return fits(_plain(body, dict))
        except _MisfitError as error:
            where = f"field {_dotted(error.path)!r}{of}" if error.path else "the body"
            raise MessageFormatError(f"{where} {error.text}") from error.__cause__

    return into


def _dotted(path: list[str | int]) -> str:
    """Such as `lines[2].price`."""
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path).removeprefix(".")


def _fit(hint: Any, planned: dict[Any, Convert]) -> Convert:
    """How a value becomes what `hint` says; `planned` are the dataclasses that are known already, for they may be in themselves."""
    origin, inside = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return planned.get(hint) or _dataclass(hint, planned)
    if origin in (Union, UnionType):
        return _any_of([_fit(one, planned) for one in inside], hint)
    if is_typeddict(hint):
        return planned.get(hint) or _typed_dict(hint, planned)
    if (origin or hint) in GATHERED:
        return _gathered(origin or hint, inside, planned)
    if origin is list:
        return _each(list, enumerate, lambda pairs: [value for _, value in pairs], _fit(inside[0], planned))
    if origin is dict:
        return _each(dict, dict.items, dict, _fit(inside[1], planned))
    if origin is Literal:
        return _choice(inside)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enumerated(hint)
    if isinstance(hint, type) and hint in WRITTEN:
        return _written(hint, WRITTEN[hint])
    if hint is Any or not isinstance(hint, type):
        return lambda value: value  # what cannot be looked into is not checked
    return _instance(hint)


def _dataclass(wanted: Any, planned: dict[Any, Convert]) -> Convert:
    try:
        hints = get_type_hints(wanted)
    except (NameError, TypeError) as error:
        raise ConfigurationError(f"{wanted.__name__}: its annotations cannot be resolved: {error}") from error
    known = [field for field in dataclasses.fields(wanted) if field.init]
    needed = [one.name for one in known if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING]
    fits: dict[str, Convert] = {}

    def into(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, wanted.__name__)
        values = {}
        for name, one in value.items():
            fit = fits.get(name)
            if fit is None:
                raise _at(name, _MisfitError(f"is not one of {wanted.__name__}"))
            values[name] = _inside(name, fit, one)
        for name in needed:
            if name not in values:
                raise _at(name, _MisfitError("is missing"))
        try:
            return wanted(**values)
        except (TypeError, ValueError) as error:
            raise _MisfitError(f"does not fit {wanted.__name__}: {error}", inside=True) from error

    planned[wanted] = into
    fits.update((one.name, _fit(hints[one.name], planned)) for one in known)
    return into


def _typed_dict(wanted: Any, planned: dict[Any, Convert]) -> Convert:
    """A dictionary with these keys, and no others."""
    fits: dict[str, Convert] = {}
    said = {name: get_origin(hint) for name, hint in get_type_hints(wanted, include_extras=True).items()}
    needed = {
        name for name in said if said[name] is Required or (name in wanted.__required_keys__ and said[name] is not NotRequired)
    }

    def into(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, wanted.__name__)
        for name in sorted(needed - value.keys()):
            raise _at(name, _MisfitError("is missing"))
        for name in value:
            if name not in fits:
                raise _at(name, _MisfitError(f"is not one of {wanted.__name__}"))
        return {name: _inside(name, fits[name], one) for name, one in value.items()}

    planned[wanted] = into
    fits.update((name, _fit(hint, planned)) for name, hint in get_type_hints(wanted).items())
    return into


def _gathered(kind: Any, inside: tuple[Any, ...], planned: dict[Any, Convert]) -> Convert:
    """A tuple or a set, which JSON and a MAP can hold as a list only."""
    fixed = kind is tuple and inside != () and inside[-1] is not Ellipsis
    fits = [_fit(one, planned) for one in inside if one is not Ellipsis] or [_fit(Any, planned)]

    def into(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _misfit(value, "list")
        if fixed and len(value) != len(fits):
            raise _MisfitError(f"is a list of {len(value)}, expected one of {len(fits)}")
        found = [_inside(at, fits[at if fixed else 0], one) for at, one in enumerate(value)]
        try:
            return kind(found)
        except TypeError:
            raise _MisfitError(f"holds what no {kind.__name__} can hold") from None

    return into


def _inside(at: str | int, fit: Convert, value: Any) -> Any:
    try:
        return fit(value)
    except _MisfitError as error:
        raise _at(at, error) from error.__cause__


def _each(kind: type, pairs: Callable[[Any], Any], whole: Convert, fit: Convert) -> Convert:
    """Each value of a list or of a dictionary."""

    def fits(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _misfit(value, kind.__name__)
        found = []
        for at, one in pairs(value):
            found.append((at, _inside(at, fit, one)))
        return whole(found)

    return fits


def _instance(wanted: type) -> Convert:
    def fits(value: Any) -> Any:
        if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is int):
            return value
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        raise _misfit(value, wanted.__name__)

    return fits


def _written(wanted: type, read: Callable[[str], Any]) -> Convert:
    def fits(value: Any) -> Any:
        if isinstance(value, wanted):
            return value
        if wanted is Decimal and isinstance(value, int) and not isinstance(value, bool):
            return Decimal(value)
        if not isinstance(value, str):
            raise _misfit(value, f"{wanted.__name__} as text")
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise _MisfitError(f"is no {wanted.__name__}") from None  # its text has the value in it

    return fits


def _any_of(options: list[Convert], hint: Any) -> Convert:
    expected = " or ".join("None" if one is NoneType else getattr(one, "__name__", str(one)) for one in get_args(hint))

    def fits(value: Any) -> Any:
        inside: _MisfitError | None = None
        for option in options:
            try:
                return option(value)
            except _MisfitError as error:
                inside = error if error.inside else inside
        raise inside or _misfit(value, expected)

    return fits


def _choice(values: tuple[Any, ...]) -> Convert:
    def fits(value: Any) -> Any:
        if any(value == one and type(value) is type(one) for one in values):
            return value
        raise _MisfitError(f"is none of {', '.join(map(repr, values))}")

    return fits


def _enumerated(wanted: type[Enum]) -> Convert:
    def fits(value: Any) -> Any:
        try:
            return wanted(value)
        except ValueError:
            raise _MisfitError(f"is no value of {wanted.__name__}") from None

    return fits


def _misfit(value: Any, expected: str) -> _MisfitError:
    return _MisfitError(f"is a {_name(type(value))}, expected {expected}")


def _at(step: str | int, error: _MisfitError) -> _MisfitError:
    error.path.insert(0, step)
    error.inside = True
    return error


def _name(kind: type) -> str:
    return "None" if kind is NoneType else kind.__name__
