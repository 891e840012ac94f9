"""Pickles functions by value where needed, keeping the file that each was written in."""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, cast

import cloudpickle


def dumps(value: object) -> bytes:
    """Pickle like cloudpickle, but so that tracebacks and stacks name the real source files."""
    with io.BytesIO() as buffer:
        _Pickler(buffer).dump(value)
        return buffer.getvalue()


def _code(make: Callable[..., CodeType], args: tuple[Any, ...], filename: str) -> CodeType:
    return make(*args).replace(co_filename=filename)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    # cloudpickle writes "<dynamic-code>" for the file name, so that payloads compare equal.
    make, args = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code, (make, args, code.co_filename)


class _Pickler(cast(type, cloudpickle.Pickler)):  # type: ignore[misc]
    dispatch_table: ClassVar[Any] = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )
