"""fsspec's own tests of file systems (fsspec.tests.abstract), on Ceph's S3 gateway and on files."""

from __future__ import annotations

import os

import pytest

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")


class OnCeph(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def bucket(cls, ceph_server):
        ceph_server.client().create_bucket(Bucket="abstract")

    @pytest.fixture
    def fs(self, ceph, bucket, engine):
        from stoker.fsspec_filesystem import StokerFileSystem

        fsspec.register_implementation("stoker", StokerFileSystem, clobber=True)
        return StokerFileSystem(engine=engine, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self, request):
        return f"s3/abstract/{abs(hash(request.node.nodeid))}"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestCopy(OnCeph, abstract.AbstractCopyTests):
    pass


class TestGet(OnCeph, abstract.AbstractGetTests):
    pass


class TestOpen(OnCeph, abstract.AbstractOpenTests):
    pass


class TestPipe(OnCeph, abstract.AbstractPipeTests):
    pass


class TestPut(OnCeph, abstract.AbstractPutTests):
    pass
