"""Whole arrays of keys looked up at once: numbers for keys, and tables that are made as needed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Index:
    """Numbers keys from 0 in the order in which they come: a hash table of arrays.

    Args:
        words: Of 64 bits, in a key.

    There is room for 2^31 keys.
    """

    def __init__(self, words: int = 1) -> None:
        self._keys = np.zeros((words, 1 << 10), np.uint64)
        self._slots = np.full(1 << 11, -1, np.int32)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> Words:
        """All keys, in order; shape (words, keys)."""
        return self._keys[:, : self._size]

    def numbers(self, keys: Words) -> Integers:
        """Return the numbers of keys of shape (words, keys); those that are new get the next."""
        count = keys.shape[1]
        self._make_room(self._size + count)
        numbers = np.empty(count, np.int64)
        todo = np.arange(count)
        slots = self._first_slots(keys)
        while len(todo):
            held = self._slots[slots]
            free = held < 0
            if free.any():
                self._claim(keys, todo[free], slots[free])
                held = self._slots[slots]
            same = np.ones(len(todo), bool)
            for own, others in zip(self._keys, keys, strict=True):
                same &= own[held] == others[todo]
            numbers[todo[same]] = held[same]
            todo = todo[~same]
            slots = (slots[~same] + 1) & (len(self._slots) - 1)
        return numbers

    def _claim(self, keys: Words, todo: Integers, slots: Integers) -> None:
        """Give each free slot the next number and one of the keys that want it."""
        self._slots[slots] = todo  # of several, one is left
        won = self._slots[slots] == todo
        numbers = self._size + np.arange(np.count_nonzero(won))
        self._keys[:, numbers] = keys[:, todo[won]]
        self._slots[slots[won]] = numbers
        self._size += len(numbers)

    def _first_slots(self, keys: Words) -> Integers:
        mixed = np.zeros(keys.shape[1], np.uint64)
        for word in keys:
            mixed = (mixed ^ word) * _MIX
            mixed ^= mixed >> np.uint64(29)
        mixed *= _MIX
        return (mixed >> np.uint64(64 - len(self._slots).bit_length() + 1)).astype(np.int64)

    def _make_room(self, most: int) -> None:
        """Let no more than half of the slots be taken by so many keys."""
        if most > self._keys.shape[1]:
            wider = np.zeros((len(self._keys), 2 * most), np.uint64)
            wider[:, : self._size] = self.keys
            self._keys = wider
        if 2 * most > len(self._slots):
            self._slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
            todo = np.arange(self._size)
            slots = self._first_slots(self.keys)
            while len(todo):
                free = self._slots[slots] < 0
                self._slots[slots[free]] = todo[free]
                lost = self._slots[slots] != todo
                todo, slots = todo[lost], (slots[lost] + 1) & (len(self._slots) - 1)


class Table:
    """Rows of integers for each key, which are made when they are first asked for.

    Args:
        make: Returns the rows for the integers of a key.
        bits: Of each of these integers.
        columns: Of each row.
    """

    def __init__(
        self, make: Callable[..., Sequence[Sequence[int]]], bits: Sequence[int], columns: int
    ) -> None:
        self._make = make
        self._bits = bits
        self._index = Index(words_of(bits))
        self._first = np.zeros(0, np.int64)
        self._count = np.zeros(0, np.int64)
        self._columns = np.zeros((columns, 0), np.int64)

    def rows(self, *key: Integers) -> tuple[Integers, Integers]:
        """Return all rows for each of the keys.

        Returns:
            For each row, which of the keys it is of; and the rows, of shape (columns, rows).
        """
        numbers = self._numbers(key)
        count = self._count[numbers]
        of = np.repeat(np.arange(len(numbers)), count)
        within = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        return of, self._columns[:, self._first[numbers][of] + within]

    def row(self, *key: Integers) -> Integers:
        """Return the only row of each of the keys, of shape (columns, keys)."""
        numbers = self._numbers(key)
        found: Integers = self._columns[:, self._first[numbers]]
        return found

    def _numbers(self, key: tuple[Integers, ...]) -> Integers:
        known = len(self._index)
        numbers = self._index.numbers(packed(key, self._bits))
        if len(self._index) > known:
            fresh = unpacked(self._index.keys[:, known:], self._bits)
            made: list[Any] = [self._make(*parts) for parts in fresh.T.tolist()]
            count = np.array([len(rows) for rows in made], np.int64)
            flat = [row for rows in made for row in rows]
            columns = np.array(flat, np.int64).reshape(len(flat), len(self._columns))
            first = self._columns.shape[1] + np.cumsum(count) - count
            self._first = np.concatenate([self._first, first])
            self._count = np.concatenate([self._count, count])
            self._columns = np.concatenate([self._columns, columns.T], axis=1)
        return numbers


def words_of(bits: Iterable[int]) -> int:
    """Return how many words integers of so many bits are packed in."""
    return len(packed([np.zeros(0, np.int64) for _ in bits], list(bits)))


def packed(parts: Iterable[Integers], bits: Sequence[int]) -> Words:
    """Return integers in as few words as hold them, of shape (words, integers).

    Raises:
        OverflowError: One is negative, or has more bits than it may.
    """
    words: list[Words] = []
    free = 0
    for part, width in zip(parts, bits, strict=True):
        if len(part) and (part.min() < 0 or int(part.max()) >> width):
            raise OverflowError(f"one of {part.min()} to {part.max()} does not fit in {width} bits")
        if width > free:
            words.append(np.zeros(len(part), np.uint64))
            free = 64
        free -= width
        words[-1] |= part.astype(np.uint64) << np.uint64(free)
    return np.array(words)


def unpacked(words: Words, bits: Sequence[int]) -> Integers:
    """Return the integers that were packed, of shape (parts, integers)."""
    parts = np.empty((len(bits), words.shape[1]), np.int64)
    at, free = -1, 0
    for number, width in enumerate(bits):
        if width > free:
            at, free = at + 1, 64
        free -= width
        parts[number] = (words[at] >> np.uint64(free)).astype(np.int64) & ((1 << width) - 1)
    return parts
