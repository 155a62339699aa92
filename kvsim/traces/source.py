"""Opening a file that somebody calls a trace: unpacking it, and saying plainly when it is something else."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kvsim.errors import TraceError

BLOCK = 1 << 20  # bytes at a time: small enough for the processor's cache, large enough for vectorised work
LONGEST_LINE = 1 << 28
HEAD = 1 << 16  # bytes that a format is recognised by

GZIP, ZSTD, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Source:
    """One file, unpacked as it is read.

    Attributes
    ----------
    path : str
        As the user gave it, for messages.
    head : bytes
        The first 64 KiB of the content, unpacked and without a byte-order mark.
    """

    path: str
    head: bytes

    @property
    def is_parquet(self) -> bool:
        """The file is a Parquet table."""
        return self.head.startswith(PARQUET)

    @property
    def first_line(self) -> str:
        """The first line, without its end."""
        return self.head.split(b"\n", 1)[0].rstrip(b"\r").decode("utf-8", "replace")

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in pieces of about 1 MiB that end with a line, each line ended by a newline alone."""
        rest = b""
        for piece in _pieces(self.path):
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield _plain_ends(rest + piece[:cut])
                rest = piece[cut:]
            else:
                rest += piece
                if len(rest) > LONGEST_LINE:
                    raise TraceError(
                        f"a line of more than {LONGEST_LINE >> 20} MiB: no trace of one request a line", file=self.path
                    )
        if rest:
            yield _plain_ends(rest + b"\n")

    def text(self) -> Iterator[str]:
        """Yield the content as text in pieces that end anywhere."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in _pieces(self.path):
            yield decoder.decode(piece)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield line numbers, from 1, and lines without their ends."""
        number = 0
        for block in self.blocks():
            for line in block[:-1].split(b"\n"):
                number += 1
                yield number, line


def one_line(text: object) -> str:
    """Return text from elsewhere as it may stand in a message: one line, nothing that a terminal acts upon."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(text).split()))


def open_source(path: str | Path) -> Source:
    """Look at a file and return it as a source of bytes.

    Raises
    ------
    TraceError
        The file is missing, empty, packed in a way that cannot be unpacked, or plainly no trace.
    """
    name = str(path)
    head = b""
    for piece in _pieces(name):
        head += piece
        if len(head) >= HEAD:
            break
    head = head[:HEAD]
    _refuse_other_things(name, head)
    return Source(name, head)


def _refuse_other_things(name: str, head: bytes) -> None:
    start = head[:200].lstrip().lower()
    if not start:
        raise TraceError("the file is empty", file=name)
    if head.startswith(b"version https://git-lfs.github.com"):
        raise TraceError("a Git-LFS pointer, not the data: run 'git lfs pull' where it comes from", file=name)
    if start.startswith((b"<!doctype html", b"<html")):
        raise TraceError("an HTML page, not a trace: the download probably got an error or a log-in page", file=name)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _looks_like_utf16(head):
        raise TraceError("the text is UTF-16: save it as UTF-8", file=name)
    if b"\0" in head and not head.startswith(PARQUET):
        raise TraceError("a binary file, not a trace in a format that kvsim knows", file=name)


def _looks_like_utf16(head: bytes) -> bool:
    """Tell ASCII in two bytes a character: every other byte is 0, and only those."""
    sample = head[:200]
    return len(sample) >= 4 and any(not any(sample[k::2]) and all(sample[1 - k :: 2]) for k in (0, 1))


def _plain_ends(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block


def _pieces(name: str) -> Iterator[bytes]:
    """Yield the unpacked content, without a byte-order mark."""
    try:
        with open(name, "rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            with _unpacked(raw, magic, name) as stream:
                piece = stream.read(BLOCK).removeprefix(UTF8_BOM)
                while piece:
                    yield piece
                    piece = stream.read(BLOCK)
    except FileNotFoundError:
        raise TraceError("no such file", file=name) from None
    except EOFError:
        raise TraceError("the gzip data ends early: the file was cut off on its way", file=name) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"the gzip data is damaged ({error})", file=name) from None
    except IsADirectoryError:
        raise TraceError("a folder, not a file", file=name) from None
    except OSError as error:
        raise TraceError(f"cannot be read ({error.strerror or error})", file=name) from None


def _unpacked(raw: IO[bytes], magic: bytes, name: str) -> Any:
    if magic.startswith(GZIP):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(ZSTD):
        return _unpacked_zstd(raw, name)
    return raw


def _unpacked_zstd(raw: IO[bytes], name: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise TraceError("zstd data: install kvsim[zstd] to read it, or unpack it first", file=name) from None
    return _ZstdStream(raw, zstandard, name)


class _ZstdStream:
    """A zstd file, frame after frame; one that is damaged or ends early is told."""

    def __init__(self, raw: IO[bytes], zstandard: Any, name: str) -> None:
        self._raw, self._zstandard, self._name = raw, zstandard, name
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    def __enter__(self) -> _ZstdStream:
        return self

    def __exit__(self, *_: object) -> None:
        """The file is closed by whoever opened it."""

    def read(self, size: int) -> bytes:
        """Return the next piece of about ``size`` bytes, empty at the end."""
        try:
            while True:
                packed = self._frame.unused_data if self._frame.eof else b""
                packed = packed or self._raw.read(size // 4)
                if not packed:
                    break
                if self._frame.eof:
                    self._frame = self._zstandard.ZstdDecompressor().decompressobj()
                if piece := self._frame.decompress(packed):
                    return bytes(piece)
        except self._zstandard.ZstdError as error:
            raise TraceError(f"the zstd data is damaged ({error})", file=self._name) from None
        if not self._frame.eof:
            raise TraceError("the zstd data ends early: the file was cut off on its way", file=self._name)
        return b""
