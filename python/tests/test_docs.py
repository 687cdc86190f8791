"""The examples of the documentation run, each page as one program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


PAGES = ["README.md", "python/README.md", "docs/python.md"]


@pytest.mark.parametrize("page", [*PAGES, pytest.param("docs/pytorch.md", marks=pytest.mark.torch)])
@pytest.mark.filterwarnings("default")
def test_examples(page, capsys):
    code = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert code
    if page == "docs/pytorch.md":
        pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    exec(compile("\n".join(code), page, "exec"), {})
