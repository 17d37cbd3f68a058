"""Quiet while loading, as before afterwards."""

import pytest
from transformers.utils import logging

from cutaway.console import quiet_transformers


@pytest.mark.parametrize("bars", [True, False])
def test_chatter_is_off_inside_and_as_it_was_outside(bars) -> None:
    was, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    try:
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
        with pytest.raises(KeyError), quiet_transformers():
            assert not logging.is_progress_bar_enabled()
            assert logging.get_verbosity() == logging.ERROR
            raise KeyError
        assert logging.is_progress_bar_enabled() is bars
        assert logging.get_verbosity() == level
    finally:
        (logging.enable_progress_bar if was else logging.disable_progress_bar)()
