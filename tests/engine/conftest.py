import pytest


@pytest.fixture(params=["local", "local:2", "ray"])
def engine(request) -> str:
    """Every engine; Ray is part of [dev], without it its laws are skipped."""
    if request.param == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'cutaway[ray]'")
    return request.param


@pytest.fixture(params=["local:2", "ray"])
def elsewhere(request) -> str:
    """Every engine whose pieces run in other processes."""
    if request.param == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'cutaway[ray]'")
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _ray_ends():
    """The Ray that tests started is stopped with them."""
    yield
    import sys

    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
