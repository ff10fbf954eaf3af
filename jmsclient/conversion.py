"""Values as Jakarta Messaging types them: the widths that Python has no type for, what may be a property, the conversion table.

A Python `bool`, `int`, `float` or `str` is a Java boolean, long, double or String. `Byte`, `Short`, `Int` and `Float` are the
narrower numbers: they are an `int` or a `float` in every way, and say with which width a property or an element travels. It must
not know messages. Source: Jakarta Messaging 3.1 sections 3.5.1, 3.5.4, 3.8.1.1 and 3.11.3; C06.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from jmsclient.errors import MessageFormatError

PropertyValue: TypeAlias = bool | int | float | str | None
V = TypeVar("V", bool, int, float, str)

# -- widths -------------------------------------------------------------------------------------------------------------


def _checked_whole(value: int, bits: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MessageFormatError(f"{name}({value!r}): expected a whole number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise MessageFormatError(f"{name}({value}): outside of {bits} bits")
    return value


class _Whole(int):
    """What the narrower whole numbers share. Raises MessageFormatError for one that does not fit."""

    __slots__ = ()
    bits: ClassVar[int]

    def __new__(cls, value: int) -> Self:
        return int.__new__(cls, _checked_whole(value, cls.bits, cls.__name__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return str(int(self))


class Byte(_Whole):
    """A Java byte: a whole number of 8 bits."""

    __slots__ = ()
    bits = 8


class Short(_Whole):
    """A Java short: a whole number of 16 bits."""

    __slots__ = ()
    bits = 16


class Int(_Whole):
    """A Java int: a whole number of 32 bits; a plain `int` is a long, of 64."""

    __slots__ = ()
    bits = 32


_FLOAT = struct.Struct(">f")


class Float(float):
    """A Java float: the number of 32 bits that is nearest. Raises MessageFormatError for one beyond the largest."""

    __slots__ = ()

    def __new__(cls, value: float) -> Float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MessageFormatError(f"Float({value!r}): expected a number")
        try:
            return float.__new__(cls, _FLOAT.unpack(_FLOAT.pack(value))[0])
        except (OverflowError, struct.error) as error:
            raise MessageFormatError(f"Float({value!r}): outside of 32 bits") from error

    def __repr__(self) -> str:
        return f"Float({to_text(self)})"

    def __str__(self) -> str:
        return to_text(self)


WIDTHS: dict[str, type[Byte] | type[Short] | type[Int] | type[Float]] = {
    "byte": Byte,
    "short": Short,
    "int": Int,
    "float": Float,
}
"""The Java names of the types that JSON would lose."""
WIDTH_NAMES: Mapping[type, str] = {kind: name for name, kind in WIDTHS.items()}
_AS_THEY_ARE = frozenset((bool, int, float, str, type(None), *WIDTHS.values()))


# -- what may be a property or an element -------------------------------------------------------------------------------

_NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_KEYWORDS = frozenset(("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"))


def checked_scalar(value: object, where: str) -> PropertyValue:
    """A value as it may be sent: of exactly one of our types, a whole number of at most 64 bits. Raises MessageFormatError."""
    kind = type(value)
    if kind not in _AS_THEY_ARE:
        if isinstance(value, int):  # an enumeration, a number of another library
            value = int(value)
        elif isinstance(value, float):
            value = float(value)
        elif isinstance(value, str):
            value = str.__str__(value)
        else:
            raise MessageFormatError(f"{where} is a {kind.__name__}: expected bool, int, float, str or None")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise MessageFormatError(f"{where} is a whole number outside of 64 bits; send it as a text")
    return value  # type: ignore[return-value]  # narrowed by _AS_THEY_ARE


def checked_property(name: object, value: object) -> PropertyValue:
    """The value as it may be sent under that name. Refuses what JMS refuses (3.5.1, 3.8.1.1): MessageFormatError naming it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.upper() in _KEYWORDS:
        raise MessageFormatError(f"property name {name!r}: expected a Java identifier that is no selector keyword")
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")):
        raise MessageFormatError(f"property name {name!r}: names that begin with JMS are reserved")
    return checked_scalar(value, f"property {name!r}")


def checked_properties(properties: Mapping[str, PropertyValue] | None) -> dict[str, PropertyValue] | None:
    """A copy of properties as they may be sent; None where there are none."""
    if not properties:
        return None
    return {name: checked_property(name, value) for name, value in properties.items()}


# -- reading a property as another type ---------------------------------------------------------------------------------

_READABLE_AS: Mapping[type, tuple[type, ...]] = {
    bool: (bool, str),
    Byte: (Byte, Short, Int, int, str),
    Short: (Short, Int, int, str),
    Int: (Int, int, str),
    int: (int, str),
    Float: (Float, float, str),
    float: (float, str),
    str: (bool, Byte, Short, Int, int, Float, float, str),
}
"""The table of JM 3.5.4: what was set as the key can be read as each of the values."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_APPROXIMATE = re.compile(r"\s*([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?\s*")


def convert(value: PropertyValue, wanted: type[V], where: str = "the value") -> V | None:
    """A value read as `wanted`: bool, Byte, Short, Int, int (long), Float, float (double) or str. None stays None.

    Raises MessageFormatError where the table of JM 3.5.4 has no such conversion, and for a text that is no such number; TypeError
    for any other `wanted`."""
    if wanted not in _READABLE_AS:
        raise TypeError(f"{where} as {wanted!r}: expected bool, Byte, Short, Int, int, Float, float or str")
    if value is None:
        return None
    given = type(value)
    if wanted not in _READABLE_AS.get(given, ()):
        raise MessageFormatError(f"{where} was set as {_java(given)} and cannot be read as {_java(wanted)}")
    if given is wanted:
        return value  # type: ignore[return-value]  # the same type
    if given is str:
        return _from_text(str(value), wanted, where)
    return to_text(value) if wanted is str else wanted(value)


def _from_text(text: str, wanted: type[V], where: str) -> V:
    """As Java's `valueOf` reads it."""
    if wanted is bool:
        return text.lower() == "true"
    matched = (_APPROXIMATE if issubclass(wanted, float) else _WHOLE).fullmatch(text)
    try:
        if matched is not None and issubclass(wanted, float):
            return wanted(float(matched[1]))
        if matched is not None and len(text) < 64:
            whole = _checked_whole(int(text), getattr(wanted, "bits", 64), _java(wanted))
            return wanted(whole)
    except MessageFormatError as error:
        raise MessageFormatError(f"{where} cannot be read as {_java(wanted)}: {error}") from error
    raise MessageFormatError(f"{where} is a text that is no {_java(wanted)}")


def to_text(value: bool | int | float | str) -> str:
    """As Java's `String.valueOf` writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _approximate_text(value)
    return str(value)


def _approximate_text(value: float) -> str:
    """The shortest digits that read back as the same number; with an exponent below 10**-3 and from 10**7 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits, exponent = _shortest(value)
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not digits.strip("0"):
        return f"{sign}0.0"
    if -3 <= exponent < 7:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        digits = digits.ljust(exponent + 2, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float) -> tuple[str, int]:
    """The digits without trailing zeros, and the power of ten of the first."""
    _, digits, exponent = Decimal(_shortest_text(value)).as_tuple()
    if len(digits) == 1:  # Java writes two at least, and then the nearest two
        _, digits, exponent = Decimal(f"{float(value):.1e}").as_tuple()
    assert isinstance(exponent, int)
    return "".join(map(str, digits)).rstrip("0") or "0", len(digits) - 1 + exponent


def _shortest_text(value: float) -> str:
    if type(value) is Float:
        for precision in range(1, 9):
            text = f"{float(value):.{precision}g}"
            try:
                if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == value:
                    return text
            except OverflowError:  # rounded up beyond the largest
                pass
        return f"{float(value):.9g}"
    return float.__repr__(value)


def _java(kind: type) -> str:
    return {bool: "boolean", int: "long", float: "double", str: "String"}.get(kind) or WIDTH_NAMES.get(kind, kind.__name__)


def plain(value: Any) -> Any:
    """Without its width: what JSON would make of it."""
    return float(value) if isinstance(value, Float) else int(value) if type(value) in WIDTH_NAMES else value
