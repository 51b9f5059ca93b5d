"""What can be said of SGLang's adapter without SGLang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preempt_oracle.engines import sglang_build
from preempt_oracle.engines.sglang_build import Stand, lacking


def raised(owner: Any, name: str) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    return caught.value


def test_what_the_adapter_did_not_provide_is_no_finding():
    scheduler = type("Scheduler", (), {})()
    told = "the engine reads 'grammar' of Scheduler, which this adapter does not provide"
    assert lacking(raised(scheduler, "grammar"), scheduler) == told
    assert lacking(raised(Stand(), "grammar"), scheduler).startswith("the engine reads 'grammar' of Stand")


def test_what_the_engine_itself_has_not_is_one():
    scheduler = type("Scheduler", (), {})()
    assert lacking(raised([], "grammar"), scheduler) == ""
    assert lacking(AttributeError("of nobody"), scheduler) == ""


def test_names_are_imported_from_a_module_that_is_not_there():
    code = (
        "import sglang_build as b; b._without_torchvision()\n"
        "import torchvision; from torchvision.transforms import InterpolationMode, functional\n"
        "from torchvision.transforms.v2 import Anything; import torchvision.io as io\n"
        "print(torchvision.__version__, InterpolationMode.BICUBIC, Anything.__name__, io.decode_jpeg.__name__)\n"
        "import importlib.util; assert importlib.util.find_spec('torchvision')"
    )
    folder = Path(sglang_build.__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0.0.0", "BICUBIC", "Anything", "decode_jpeg"], done.stderr
