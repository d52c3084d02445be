"""A prefix of an object store: S3, Google Cloud Storage, Azure Blob Storage.

Read by ranges and written by multipart uploads, through obstore, which is imported when the first store is opened.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from requant.checkpoint.storage.object_store_client import RETRY, client_of
from requant.checkpoint.storage.object_store_errors import storage_errors
from requant.checkpoint.storage.read_ahead import BLOCK, ReadAhead
from requant.checkpoint.storage.spooled_upload import SpooledUpload
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, Store, StoredFile
from requant.errors import SourceChangedError, StorageError
from requant.errors.cancellation import check_cancelled, checked

if TYPE_CHECKING:
    from obstore import Bytes, GetOptions, GetResult, ObjectMeta
    from obstore.store import RetryConfig

    from requant.checkpoint.storage.object_store_client import Client

MAX_FILES = 20_000


def open_object_store(url: str, *, retry: RetryConfig = RETRY) -> ObjectStore:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    Credentials, region and endpoint come from the environment variables that obstore reads: `AWS_*`, `GOOGLE_*`,
    `AZURE_*`. Nothing is asked of the server. Raises StorageError where the URL cannot be one, where settings of the
    environment are wrong, and where obstore is not installed.
    """
    return ObjectStore(url, client_of(url, retry))


class ObjectStore(Store):
    """A store over one of obstore's clients, whose prefix is that of `url`.

    The version of a file is its ETag, and the time of its last change where a server sends none.
    """

    read_size = BLOCK

    def __init__(self, url: str, client: Client) -> None:
        self.url = url.rstrip("/")
        self._client = client
        self._read_ahead = ReadAhead(self._fetch)

    def files(self) -> tuple[StoredFile, ...]:
        import obstore

        with storage_errors(self.url, "cannot be listed"):
            listed = []
            for chunk in checked(obstore.list(self._client, chunk_size=1000), 1):
                listed += [_stored(each) for each in chunk]
                if len(listed) > MAX_FILES:
                    raise StorageError(
                        f"{self.url} has more than {MAX_FILES} objects; expected the prefix of one model"
                    )
        # Consoles show a folder by an empty object of its name.
        folders = {"", *(str(folder) for file in listed for folder in PurePosixPath(file.name).parents)}
        found = [file for file in listed if file.size or file.name not in folders]
        return tuple(sorted(found, key=lambda file: file.name))

    def find(self, name: str) -> StoredFile | None:
        import obstore

        check_cancelled()
        try:
            with storage_errors(self.url, "cannot be read", name, expected=(FileNotFoundError,)):
                return _stored(obstore.head(self._client, name))
        except FileNotFoundError:
            return None

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        target = target.cast("B")
        if offset + len(target) > file.size:
            raise self._changed(file)
        if target:
            self._read_ahead.read_into(file, offset, target)

    def _fetch(self, file: StoredFile, begin: int, end: int) -> memoryview:
        import obstore
        from obstore.exceptions import PreconditionError

        options: GetOptions = {"range": (begin, end), "if_match": file.version}
        missing = (FileNotFoundError, PreconditionError)
        try:
            with storage_errors(self.url, "cannot be read", file.name, expected=missing):
                result = obstore.get(self._client, file.name, options=options)
                if _stored(result.meta) == file and result.range == (begin, end):
                    return memoryview(self._content(result, file.name, end - begin))
        except missing:
            pass
        raise self._changed(file)

    def _content(self, result: GetResult, name: str, size: int) -> bytes | Bytes:
        """Return the body of an answer. Raises StorageError where it has another size than the answer says."""
        parts: list[bytes | Bytes] = []
        received = 0
        for part in result.stream(min_chunk_size=size + 1):
            parts.append(part)
            received += len(part)
            if received > size:
                break
        if received != size:
            more = "more bytes" if received > size else f"{received} bytes"
            raise StorageError(f"{self.url}/{name}: the server sent {more}; expected {size}", file=name)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _changed(self, file: StoredFile) -> SourceChangedError:
        return SourceChangedError(
            f"{self.url}/{file.name} is no longer the file of {file.size} bytes with the ETag {file.version} that the "
            "plan was made from; make a new plan",
            file=file.name,
        )

    def create(self, name: str, size: int) -> FileWriter:
        return SpooledUpload(self._client, self.url, name, size)

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        import obstore

        check_cancelled()
        try:
            with storage_errors(self.url, "cannot be read", name, expected=(FileNotFoundError,)):
                result = obstore.get(self._client, name)
                size = result.meta["size"]
                if size <= max_bytes:
                    return bytes(self._content(result, name, size))
        except FileNotFoundError:
            return None
        raise StorageError(f"{self.url}/{name} has {size} bytes; expected at most {max_bytes}", file=name)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        mode: Literal["create", "overwrite"] = "create" if only_if_absent else "overwrite"
        try:
            with storage_errors(self.url, "cannot be written", name, expected=(AlreadyExistsError,)):
                obstore.put(self._client, name, data, mode=mode, use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        import obstore

        missing = FileNotFoundError
        with suppress(missing), storage_errors(self.url, "cannot be removed", name, expected=(missing,)):
            obstore.delete(self._client, name)


def _stored(meta: ObjectMeta) -> StoredFile:
    return StoredFile(meta["path"], meta["size"], meta["e_tag"] or meta["last_modified"].isoformat())
