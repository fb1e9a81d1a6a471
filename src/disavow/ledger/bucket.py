"""Models and updates as objects of an S3-compatible bucket, through s3fs.

A PUT, or a multipart upload that is completed, makes an object that is there whole or not at all, and durable when
it is answered. It carries a checksum of the bytes, and the server refuses what has another. Credentials, region and
endpoint are AWS's own: its variables (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...), or a profile.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from disavow.errors import (
    BucketRefused,
    BucketUnreachable,
    ConfigError,
    DisavowError,
    MissingExtra,
    how_to_install,
)

if TYPE_CHECKING:
    from s3fs import S3FileSystem

_A_PART = 4 << 30
"""Bytes of a part, of an object above the 5 GiB that S3 takes in one piece."""

_A_PAGE = 1_000
"""Keys that one request lists or deletes, at most."""

_CONNECTING = {
    "connect_timeout": 10,
    "read_timeout": 60,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}

_PERMISSIONS = (
    "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_PROFILE, and at the bucket's policy: it takes "
    "s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject; the run stays at its last good state"
)
_ENDPOINT = "look at its name, at AWS_ENDPOINT_URL and at AWS_DEFAULT_REGION; the run stays at its last good state"

_TOO_MANY_REQUESTS, _SERVER_ERRORS = 429, 500

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_STEP = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.=+@-]+")
_LONGEST = 700
"""Characters of a prefix; a key has at most 1,024 bytes, with the name of a run's object."""


@dataclass(frozen=True)
class Location:
    """Where the objects of runs lie: a bucket, and what their keys begin with."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Location:
        """Read a URL such as s3://bucket/prefix.

        Args:
            url: The URL. Credentials do not belong in it, because the run keeps it.

        Raises:
            ConfigError: It cannot be used.

        """
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise _refused("a text that is no URL", str(error)) from None
        if parts.scheme != "s3":
            kind = f"a URL of the kind {parts.scheme!r}" if parts.scheme else "no URL"
            raise _refused(kind, "s3://BUCKET/PREFIX, or none: then models are files of the run directory")
        if "@" in parts.netloc or parts.query or parts.fragment:
            what = "s3://BUCKET/PREFIX alone; credentials and the endpoint come from AWS's variables or profile"
            raise _refused("a URL with a user, a query or a fragment", what)
        prefix = parts.path.strip("/")
        fits = not prefix or all(map(_STEP.fullmatch, prefix.split("/")))
        if not _BUCKET.fullmatch(parts.netloc) or not fits or len(prefix) > _LONGEST:
            what = "a bucket's name, then a prefix of letters, digits and _.=+@- between single slashes"
            raise _refused(repr(url), what)
        return cls(parts.netloc, prefix)

    def of_run(self, run_id: str) -> Location:
        """Where the objects of one run lie."""
        return Location(self.bucket, "/".join(filter(None, (self.prefix, run_id))))

    @property
    def run_id(self) -> str:
        """The last step of the prefix: that of the run whose objects lie here."""
        return self.prefix.rpartition("/")[2]

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def _refused(found: str, allowed: str) -> ConfigError:
    return ConfigError(f"the place for models is {found}; allowed: {allowed}")


@lru_cache(maxsize=4)
def _connect(around: frozenset[tuple[str, str]], process: int) -> S3FileSystem:  # noqa: ARG001 - what it depends on
    """The client of a process, made once for the variables that it reads: that takes longer than a request."""
    try:
        import s3fs
    except ModuleNotFoundError as error:
        raise MissingExtra(f"models in a bucket need {error.name}; {how_to_install('s3')}") from None
    return s3fs.S3FileSystem(config_kwargs=_CONNECTING, use_listings_cache=False, skip_instance_cache=True)


class Bucket:
    """The objects under one prefix of a bucket, all of whose names have one pattern.

    Nothing is connected, and nothing imported, before the first request.

    Args:
        location: The bucket, and what the keys of the objects begin with.
        names: The pattern of the names of ours.

    """

    def __init__(self, location: Location, names: str) -> None:
        self.location = location
        self._ours = re.compile(names)

    @property
    def _s3(self) -> S3FileSystem:
        around = frozenset((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
        return _connect(around, os.getpid())

    def _key(self, name: str) -> str:
        return f"{self.location.prefix}/{name}"

    def check(self) -> None:
        """Refuse a bucket that is not there, or that we may not list."""
        with self._requesting():
            self._s3.call_s3("list_objects_v2", Bucket=self.location.bucket, Prefix=self.location.prefix, MaxKeys=1)

    def names(self, *, beyond: Collection[str] = ()) -> list[str]:
        """The names of the objects here that are ours, less those in `beyond`."""
        return [name for name in self._all() if name not in beyond and self._ours.fullmatch(name)]

    def others(self) -> list[str]:
        """The names of whatever else is here; it is left alone."""
        return [name for name in self._all() if not self._ours.fullmatch(name)]

    def _all(self) -> list[str]:
        found: list[str] = []
        query: dict[str, Any] = {"Bucket": self.location.bucket, "Prefix": self._key(""), "MaxKeys": _A_PAGE}
        with self._requesting():
            while True:
                page = self._s3.call_s3("list_objects_v2", **query)
                found += [item["Key"].removeprefix(query["Prefix"]) for item in page.get("Contents", [])]
                if not page.get("IsTruncated"):
                    return sorted(found)
                query["ContinuationToken"] = page["NextContinuationToken"]

    def make(self) -> None:
        """Do nothing: a prefix is there as soon as something is under it."""

    def sync(self) -> None:
        """Do nothing: what was answered is durable."""

    def size(self, name: str) -> int | None:
        """The bytes that an object takes; None where there is none."""
        try:
            with self._requesting(missing="404"):  # a HEAD has no body to say more
                head = self._s3.call_s3("head_object", Bucket=self.location.bucket, Key=self._key(name))
        except FileNotFoundError:
            return None
        return int(head["ContentLength"])

    def read(self, name: str) -> bytes:
        """The bytes of an object; FileNotFoundError where there is none."""
        with self._requesting():
            data: bytes = self._s3.cat_file(f"{self.location.bucket}/{self._key(name)}")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Store an object whole, and see that it is there: the server has compared its checksum, we its size."""
        checksum = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        with self._requesting():
            self._s3.pipe_file(
                f"{self.location.bucket}/{self._key(name)}", data, chunksize=_A_PART, ContentMD5=checksum
            )
        if (found := self.size(name)) != len(data):
            raise BucketUnreachable(
                f"{self.location}/{name} was stored with {len(data)} bytes, and has {found}; the run stays at its "
                "last good state"
            )

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects of ours; no other name is ever deleted."""
        ours = [{"Key": self._key(name)} for name in names if self._ours.fullmatch(name)]
        for start in range(0, len(ours), _A_PAGE):
            some = {"Objects": ours[start : start + _A_PAGE], "Quiet": True}
            with self._requesting():
                answer = self._s3.call_s3("delete_objects", Bucket=self.location.bucket, Delete=some)
            if failed := answer.get("Errors"):  # a request that succeeds may have deleted nothing
                raise BucketRefused(
                    f"{len(failed)} objects of {self.location} cannot be deleted: {failed[0].get('Message')}; "
                    f"{_PERMISSIONS}"
                )

    @contextmanager
    def _requesting(self, *, missing: str = "NoSuchKey") -> Iterator[None]:
        """Turn what s3fs and botocore raise into errors that say what to do.

        A missing object stays a FileNotFoundError; `missing` is the code by which S3 tells it. Whatever else
        answers 404 is no S3 server, and does not know.
        """
        self._s3  # noqa: B018 - what is not installed is another error
        from aiohttp import ClientError as ConnectionFailed
        from botocore.exceptions import BotoCoreError
        from botocore.parsers import ResponseParserError

        try:
            yield
        except (OSError, BotoCoreError, ConnectionFailed, ResponseParserError) as error:
            answer = getattr(error.__cause__, "response", None) or {}
            if answer.get("Error", {}).get("Code") == missing:
                raise FileNotFoundError(str(error)) from None
            raise self._error_of(error, answer) from error

    def _error_of(self, error: Exception, answer: dict[str, Any]) -> DisavowError:
        """What a failed request comes to, going by what the server answered."""
        from botocore.exceptions import CredentialRetrievalError, NoCredentialsError, PartialCredentialsError

        reason = " ".join(str(error).split()) or type(error).__name__
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER_ERRORS)
        if answer.get("Error", {}).get("Code") == "NoSuchBucket":
            return BucketRefused(f"there is no bucket {self.location.bucket}: {reason}; {_ENDPOINT}")
        unknown = NoCredentialsError, PartialCredentialsError, CredentialRetrievalError
        if isinstance(error, (PermissionError, *unknown)):
            return BucketRefused(f"{self.location} may not be used: {reason}; {_PERMISSIONS}")
        if status < _SERVER_ERRORS and status != _TOO_MANY_REQUESTS:
            return BucketRefused(f"{self.location} cannot be used: {reason}; {_ENDPOINT}")
        return BucketUnreachable(
            f"{self.location} cannot be reached: {reason}; the run stays at its last good state: look at the "
            "network and at AWS_ENDPOINT_URL, then try again"
        )
