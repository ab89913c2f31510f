from tests.comm.conftest import ranks

__all__ = ["ranks"]
