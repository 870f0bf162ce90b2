"""Arrays and scalars of numpy, where the program has imported it.

Writing never imports numpy: without it there is nothing to write.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault
from caravanserai_core.codec._strict import base64_bytes, base64_text, strict
from caravanserai_core.errors import UnknownType

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["read_array", "read_scalar", "writer"]

_KINDS = "biufcSUmM"
_DTYPE = r"[<>|][biufcSUmM][0-9]{1,9}(\[[0-9]{0,9}[A-Za-z]{1,8}\])?"
_MOST_EMPTY = 1_000_000


def writer(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    """What writes objects of this exact class; None if it is none of numpy's."""
    numpy: Any = sys.modules["numpy"]
    if cls is numpy.ndarray:
        return _array
    if issubclass(cls, numpy.generic) and cls.__module__ == "numpy":
        return _scalar
    return None


def _name(dtype: Any) -> str:
    if dtype.kind not in _KINDS or dtype.metadata or not re.fullmatch(_DTYPE, dtype.str):
        raise Fault(
            f"a numpy dtype of kind {dtype.kind!r} cannot be kept exactly; convert the array to "
            "numbers or texts, or keep its fields apart"
        )
    return str(dtype.str)


def _array(value: Any) -> dict[str, Any]:
    flags = value.flags
    order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    return {
        "$ndarray": {
            "dtype": _name(value.dtype),
            "shape": list(value.shape),
            "order": order,
            "data": base64_text(value.tobytes(order)),
        }
    }


def read_array(content: Any) -> object:
    """Rebuild an array; its size is checked against its data before anything is allocated."""
    numpy = _numpy("$ndarray")
    strict(type(content) is dict)
    strict(content.keys() == {"dtype", "shape", "order", "data"})
    dtype, shape = _read_dtype(content["dtype"]), content["shape"]
    strict(type(shape) is list and len(shape) <= 64 and content["order"] in ("C", "F"))
    strict(all(type(size) is int and 0 <= size < 2**62 for size in shape))
    data = base64_bytes(content["data"])
    count = math.prod(shape)
    strict(count * dtype.itemsize == len(data) and (dtype.itemsize or count <= _MOST_EMPTY))
    array = numpy.ndarray(shape, dtype, order=content["order"])
    if data:
        flat = numpy.frombuffer(data, dtype)
        array[...] = flat.reshape(shape, order=content["order"])
    return array


def _scalar(value: Any) -> dict[str, Any]:
    name = _name(value.dtype)
    if value.dtype.kind == "U":
        # numpy itself strips trailing NULs from texts in arrays.
        data = str.__str__(value).encode("utf-32-le", "surrogatepass")
    elif value.dtype.kind == "S":
        data = bytes.__getitem__(value, slice(None))
    else:
        data = value.tobytes()
    return {"$npscalar": {"dtype": name, "data": base64_text(data)}}


def read_scalar(content: Any) -> object:
    """Rebuild a scalar."""
    numpy = _numpy("$npscalar")
    strict(type(content) is dict and content.keys() == {"dtype", "data"})
    dtype, data = _read_dtype(content["dtype"]), base64_bytes(content["data"])
    if dtype.kind == "U" or dtype.kind == "S":
        text = data.decode("utf-32-le", "surrogatepass") if dtype.kind == "U" else data
        value = numpy.str_(text) if dtype.kind == "U" else numpy.bytes_(text)
        strict(_scalar(value)["$npscalar"] == content)
        return value
    strict(dtype.itemsize == len(data) and dtype.isnative)
    return numpy.frombuffer(data, dtype)[0]


def _numpy(tag: str) -> Any:
    try:
        import numpy
    except ImportError as error:
        raise Fault("needs numpy, which is not installed", UnknownType, tag) from error
    return numpy


def _read_dtype(text: Any) -> Any:
    numpy = sys.modules["numpy"]
    strict(type(text) is str and re.fullmatch(_DTYPE, text))
    dtype = numpy.dtype(text)
    strict(dtype.str == text)
    return dtype
