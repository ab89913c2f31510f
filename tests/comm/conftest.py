import pytest

from tests.comm.rank_pool import RankPool


@pytest.fixture(scope="session")
def ranks():
    pool = RankPool(4, worlds=(1, 2, 4))
    yield pool
    pool.close()
