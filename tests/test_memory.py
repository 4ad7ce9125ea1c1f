"""Freed pages stay in the process, where the C library knows how."""

from __future__ import annotations

import ctypes
import platform

from flatfed.memory import keep_pages


def test_glibc_keeps_pages() -> None:
    assert keep_pages() is (platform.libc_ver()[0] == "glibc")


def test_another_c_library_is_left_as_it_is(monkeypatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_pages() is False
