"""Tests of GPUs are skipped where PyTorch has none; with REQUIRE_BACKEND they fail there."""

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        reason = "PyTorch has no GPU"
        pytest.fail(reason) if os.environ.get("REQUIRE_BACKEND") else pytest.skip(reason)
