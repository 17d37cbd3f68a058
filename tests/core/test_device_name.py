"""Names of devices are known without torch."""

import pytest

from cutaway.core.device_name import need_device_name
from cutaway.core.errors import BadSpec


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12", "mps", "map"])
def test_a_device_may_be_named(name):
    assert need_device_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "gpu", "cuda:", "cuda:-1", "cuda:0 ", "CPU", "cuda:0\n", "cpu:0"]
)
def test_another_name_is_refused_with_what_is_allowed(name):
    with pytest.raises(BadSpec, match="auto, cpu, cuda, cuda:N, mps or map"):
        need_device_name(name)
