"""Download public files from their publishers once, and check them.

The checksum is taken over the decompressed bytes, so a plain file, a gzipped one and a copy inside a tar archive
are all the same file.
"""

import dataclasses
import gzip
import hashlib
import http.client
import io
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path

from l2p.base.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"
#: Exceptions of reading or downloading a file.
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError, http.client.HTTPException, ValueError)


@dataclasses.dataclass(frozen=True)
class Source:
    """A public file.

    Attributes:
      file: its plain name, as in "a9a"; in the data folder it may also be gzipped, as "a9a.gz".
      urls: mirrors, tried in order; each serves the file plain, gzipped, or inside a `.tgz` archive.
      sha256: hexadecimal SHA-256 of the decompressed bytes.
    """

    file: str
    urls: tuple[str, ...]
    sha256: str


def data_folder(data_dir: Path | None = None) -> Path:
    """The folder of public files: the argument, else `L2P_DATA_DIR`, else the user's cache.

    >>> data_folder(Path("sets"))
    PosixPath('sets')
    """
    if data_dir is not None:
        return Path(data_dir)
    if chosen := os.environ.get("L2P_DATA_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "l2p"


def fetch(source: Source, folder: Path, timeout: float = 30.0) -> bytes:
    """Decompressed bytes of a public file, downloaded into the folder if it is not there yet.

    Args:
      source: the file.
      folder: where the file is kept, gzipped; created if missing.
      timeout: seconds without an answer before the next mirror is tried.

    Raises:
      InputError: the file in the folder has the wrong checksum, no mirror has the right file, or the folder cannot
        be written. The message says where to put the file by hand.

    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "greeting").write_bytes(b"hello")
    >>> fetch(Source("greeting", (), hashlib.sha256(b"hello").hexdigest()), folder)
    b'hello'
    """
    for path in (folder / source.file, folder / f"{source.file}.gz"):
        if path.exists():
            return _read(path, source)
    data = _download(source, folder, timeout)
    _write_atomically(folder / f"{source.file}.gz", gzip.compress(data, mtime=0))
    return data


def _read(path: Path, source: Source) -> bytes:
    try:
        data = _decompress(path.read_bytes())
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read ({error}): delete it to have it downloaded again") from error
    if hashlib.sha256(data).hexdigest() != source.sha256:
        raise InputError(
            f"{path} is not the published file (its SHA-256 differs): delete it to have it downloaded again"
        )
    return data


def _download(source: Source, folder: Path, timeout: float) -> bytes:
    failures = []
    for url, answer in _answers(source, timeout):
        if isinstance(answer, Exception):
            failures.append(f"{url}: {answer}")
        elif hashlib.sha256(answer).hexdigest() != source.sha256:
            failures.append(f"{url}: not the published file, its SHA-256 differs")
        else:
            return answer
    raise InputError(
        f"the public file {source.file} could not be downloaded ({'; '.join(failures) or 'no address known'}): "
        f"put it by hand at {folder / source.file}, or gzipped at {folder / source.file}.gz"
    )


def _answers(source: Source, timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
    for url in source.urls:
        try:
            # Some mirrors reject urllib's default user agent.
            request = urllib.request.Request(url, headers={"User-Agent": "l2p"})
            with urllib.request.urlopen(request, timeout=timeout) as response:
                payload = response.read()
            yield url, _from_archive(payload, source.file) if url.endswith(".tgz") else _decompress(payload)
        except urllib.error.HTTPError as error:
            error.close()  # the error is also the response
            yield url, error
        except UNREADABLE as error:
            yield url, error


def _decompress(payload: bytes) -> bytes:
    return gzip.decompress(payload) if payload.startswith(_GZIP_MAGIC) else payload


def _from_archive(payload: bytes, file: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
        for member in archive:
            content = archive.extractfile(member) if Path(member.name).name == file else None
            if content is not None:
                return content.read()
    raise tarfile.TarError(f"the archive has no {file}")


def _write_atomically(path: Path, payload: bytes) -> None:
    # A reader, or a second process that downloads the same file, must never see half of it.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as part:
            (Path(part) / path.name).write_bytes(payload)
            os.replace(Path(part) / path.name, path)
    except OSError as error:
        raise InputError(
            f"the data folder {path.parent} cannot be written ({error.strerror}): set L2P_DATA_DIR to another folder"
        ) from error
