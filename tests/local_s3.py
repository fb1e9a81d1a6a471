"""A real S3 server on this machine (moto's), and a bucket of its own for each test that asks for one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""

_NUMBERS = count(1)


@dataclass(frozen=True)
class LocalBucket:
    """A bucket, as somebody with another program sees it."""

    name: str
    endpoint: str
    client: Any

    @property
    def url(self) -> str:
        """Where a run is told to keep its models."""
        return f"s3://{self.name}/federations"

    def objects(self) -> dict[str, bytes]:
        """Every object, with its bytes."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {key: self.read(key) for key in keys}

    def read(self, key: str) -> bytes:
        """The bytes of one object."""
        data: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return data

    def write(self, key: str, data: bytes) -> None:
        """Store or replace one object."""
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        """Delete one object."""
        self.client.delete_object(Bucket=self.name, Key=key)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server; it ends with its standard input, and so with whoever started it."""
    for module in ("s3fs", "boto3", "moto.server"):
        pytest.importorskip(module, reason="needs the extra s3 and moto, which the extra dev brings")
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _SERVER]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


@pytest.fixture(scope="session")
def s3_client(s3_server: str) -> Any:
    """Another program than disavow's, to look at the server with."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=s3_server,
        aws_access_key_id="tests",
        aws_secret_access_key="tests",
        region_name="us-east-1",
    )


@pytest.fixture
def bucket(s3_server: str, s3_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBucket:
    """A new bucket, and AWS's variables that lead there; nothing of the operator's own."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    found = LocalBucket(f"tests-{next(_NUMBERS)}", s3_server, s3_client)
    s3_client.create_bucket(Bucket=found.name)
    return found
