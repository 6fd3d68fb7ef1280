"""The whole page as on ZeroGPU: runs on lent GPUs, and recordings if no GPU is available."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest
from fake_zerogpu import Devices, device_service
from forked_page import forked_page
from places import HELPERS
from playwright.sync_api import expect
from visitor import PATIENCE, Visit

from specviz.base.environment import ASSETS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        importlib.util.find_spec("spaces") is None or sys.platform != "linux",
        reason="no package 'spaces' here, or no Linux",
    ),
    pytest.mark.skipif(
        not (ASSETS / "pair" / "target").is_dir() or not (ASSETS / "recordings").is_dir(),
        reason="no built-in pair, or no recordings here",
    ),
]


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Devices]]:
    """The page's address and the service that lends it GPUs."""
    with device_service() as devices, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACES_ZERO_GPU", "true")
        patch.setenv("SPACES_ZERO_DEVICE_API_URL", devices.url)
        patch.setenv("ZEROGPU_OFFLOAD_DIR", str(tmp_path_factory.mktemp("lent") / "tensors"))
        patch.setenv("OMP_NUM_THREADS", "1")
        with forked_page(HELPERS / "zerogpu_host.py", "page") as url:
            yield url, devices


def test_a_run_is_live_and_on_its_visitors_account(visit: Visit, lent: tuple[str, Devices]) -> None:
    url, devices = lent
    visitor = visit(address=url)
    visitor.page.set_extra_http_headers({"X-IP-Token": "whose.run.is"})
    visitor.set("number input for Length", 24)
    trace = visitor.run()
    assert trace["end"]["reasons"] and trace["header"]["target"]["form"] == "eager"
    assert devices.last("/schedule")["token"] == "whose.run.is"
    expect(visitor.player).to_have_attribute("data-source", "live")


def test_without_quota_a_recording_plays_and_the_page_says_why(
    visit: Visit, lent: tuple[str, Devices]
) -> None:
    url, devices = lent
    visitor = visit(address=url)
    devices.answers.append("quota")
    visitor.prompt("of my own")
    visitor.button("Run").click()
    notice = visitor.page.locator("[data-notice]")
    expect(notice).to_contain_text("used up", timeout=PATIENCE)
    expect(visitor.player).to_have_attribute("data-source", "recording")
    expect(visitor.page.locator("[data-badge]")).to_contain_text("live failed")
    visitor.state("running")
    expect(notice).to_contain_text("used up")  # even while the recording plays
    assert visitor.trace()["rounds"]
