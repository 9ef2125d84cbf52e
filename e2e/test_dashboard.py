"""The dashboard in a real browser, of jobs that run, that have ended, and that are hostile or very large."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from e2e.browser import TIMEOUT_MILLISECONDS, DashboardProcess, Viewer, chromium
from elasticdl.jobs.history.entries import NodeChange, NodeState, Sample, to_line
from tests.catalog.api_server import RUNNING, ApiServer
from tests.dashboard.stored_jobs import NOW, history_of, store_job
from tests.dashboard.test_cluster_page import put_node, put_pod, put_training_job

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script> javascript:alert(1) \x1b[2J'
NODES = 1000

expect.set_options(timeout=TIMEOUT_MILLISECONDS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def view(browser: Browser) -> Iterator[Callable[..., Viewer]]:
    """Opens a page in a browser profile of its own."""
    contexts = []

    def open_page(**settings: Any) -> Viewer:
        context = browser.new_context(**settings)
        contexts.append(context)
        return Viewer(context.new_page())

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Callable[..., DashboardProcess]]:
    running = []

    def start(*flags: str) -> DashboardProcess:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        process = DashboardProcess(home, *flags)
        running.append(process)
        process.start()
        return process

    yield start
    for process in running:
        process.stop()


def test_live_job_with_a_killed_worker_a_reload_and_a_restarted_server(
    start_gated: Callable[..., Any],
    gates: Any,
    dashboard: Callable[..., DashboardProcess],
    view: Callable[..., Viewer],
) -> None:
    gates.hold("train")
    job = start_gated("--num_epochs=6", environment={"ELASTICDL_TEST_SLOW": "0.02"})
    gates.wait_for("train", 2)
    server = dashboard("--allow_actions")
    viewer = view()
    page = viewer.page

    # From the list to the job by the keyboard.
    page.goto(server.link())
    viewer.shows("gated")
    assert "token" not in page.url
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("gated")
    expect(page.locator(".title-line .state")).to_have_text(re.compile("running"))
    viewer.shows("with 2 of 2 workers")

    # Figures move without a reload.
    gates.release("train")
    expect(page.locator(".progress-words strong")).not_to_have_text("0%")
    for card in ("Loss", "Throughput", "Size", "Learning rate", "Where the time went", "Ledger", "Nodes"):
        page.get_by_role("region", name=card, exact=True).wait_for()
    page.locator(".chart canvas").first.wait_for()

    # A kill is seen: the worker is dead, another one works in its place.
    page.keyboard.press("ArrowRight")
    viewer.shows("worker-1")
    gates.hold("train")
    job.kill("worker-0")
    row = page.locator("tr:has(th:text-is('worker-0'))")
    expect(row.locator(".state")).to_have_text(re.compile("killed"))
    expect(row.locator(".why")).to_have_text(re.compile("SIGKILL"))
    expect(page.locator("tr:has(th:text-is('worker-2')) .state")).to_have_text(re.compile("working"))
    viewer.open_tab("events")
    viewer.shows("worker-0 was killed: ended by SIGKILL.")
    viewer.open_tab("servers")
    viewer.shows("Bucket map")
    viewer.open_tab("definition")
    viewer.shows("--model_def=gated.model.custom_model")
    viewer.open_tab("logs")
    viewer.shows("worker-2 has joined.", within=".log")

    # A reload stays where it was, without the token.
    page.reload()
    viewer.shows("worker-2 has joined.", within=".log")

    # A server that was away comes back to an open page, which goes on.
    server.stop()
    expect(page.locator(".live")).to_have_text(re.compile("offline"))
    server.start()
    expect(page.locator(".live")).to_have_text("live")
    # `jobs status` knows where the page is.
    assert f"Page: {server.link('gated')}" in job.command("jobs", "status", "gated").stdout

    # Scaled from the page, behind a confirmation.
    page.get_by_role("button", name="Scale…").click()
    page.get_by_label("Workers").fill("3")
    page.get_by_role("button", name="Scale", exact=True).click()
    expect(page.locator("dialog .notice")).to_have_text("Job gated goes from 2 to 3 workers.")
    page.get_by_role("button", name="Close").click()
    gates.release("train")
    job.assert_exact(epochs=6, size=1437)
    expect(page.locator(".title-line .state")).to_have_text(re.compile("succeeded"))
    viewer.open_tab("overview")
    expect(page.locator(".progress-words strong")).to_have_text("100%")
    assert viewer.problems == []
    assert "Traceback" not in server.output


def test_page_without_the_token_asks_for_the_link(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer]
) -> None:
    server = dashboard()
    store_job(server.home, "secret-job")
    page = view().page
    page.goto(f"{server.address}/")
    page.get_by_role("heading", name="Open the link with the token").wait_for()
    assert "secret-job" not in page.content()
    page.get_by_label("Link or token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Link or token").fill(server.link())
    page.get_by_role("button", name="Open").click()
    page.get_by_role("link", name="secret-job").wait_for()
    # Scripts cannot read the session.
    assert page.evaluate("document.cookie") == ""


def test_hostile_log_line_is_shown_as_text(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer]
) -> None:
    server = dashboard()
    store_job(server.home, "hostile", state="failed", message=HOSTILE, logs=[HOSTILE, "plain"])
    viewer = view()
    page = viewer.page
    page.goto(server.link())
    viewer.shows("<img src=x")
    page.goto(f"{server.address}/#/job/-/hostile/logs")
    viewer.shows(HOSTILE[:60], within=".log")
    page.get_by_label("Search the logs").fill("<script>")
    expect(page.locator(".log mark")).to_have_text("<script>")
    expect(page.locator(".log .line")).to_have_count(1)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hacked") is None
    assert viewer.problems == []


def test_job_of_a_thousand_nodes(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer]
) -> None:
    server = dashboard()
    reports = [
        {"name": f"worker-{i}", "role": "worker", "phase": "succeeded", "reason": "completed"}
        for i in range(NODES)
    ]
    folder = store_job(server.home, "huge", nodes=reports, targets={"worker": NODES})
    entries = [
        NodeChange(time=NOW - 59 + i / 100, node=f"worker-{i}", role="worker", state=state)
        for i in range(NODES)
        for state in (NodeState.PENDING, NodeState.STARTING, NodeState.WORKING)
    ]
    samples = [Sample(time=NOW - 40 + i / 50, step=i, loss=1.0, ready_workers=i) for i in range(2000)]
    folder.history_path.write_text("".join(map(to_line, [*history_of(), *entries, *samples])))
    viewer = view()
    page = viewer.page
    page.goto(server.link("huge"))
    page.get_by_role("img", name="Timeline of 1000 nodes").wait_for()
    viewer.open_tab("nodes")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr")).to_have_count(600)
    page.get_by_label("Search nodes").fill("worker-999")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert viewer.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer], scheme: str
) -> None:
    server = dashboard()
    store_job(server.home, "a-job-with-a-name-that-is-longer-than-most")
    viewer = view(viewport={"width": 360, "height": 780}, color_scheme=scheme, has_touch=True)
    page = viewer.page
    page.goto(server.link())
    page.get_by_role("link", name="a-job").click()
    for name in ("overview", "nodes", "servers", "logs", "events", "definition"):
        viewer.open_tab(name)
        assert viewer.fits(), name
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(246, 247, 249)", "dark": "rgb(15, 20, 27)"}[scheme]
    assert viewer.problems == []


def test_jobs_are_filtered_and_deleted_behind_a_confirmation(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer]
) -> None:
    server = dashboard("--allow_actions")
    store_job(server.home, "good")
    store_job(server.home, "bad", state="failed", message="It broke.")
    viewer = view()
    page = viewer.page
    page.goto(server.link())
    expect(page.locator(".job-row")).to_have_count(2)
    page.get_by_role("button", name="failed").click()
    expect(page.locator(".job-row")).to_have_count(1)
    viewer.shows("It broke.")
    page.get_by_role("button", name="all").click()
    page.keyboard.press("/")
    page.keyboard.type("goo")
    expect(page.locator(".job-row")).to_have_count(1)
    page.get_by_role("link", name="good").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete the job").click()
    expect(page.locator("dialog .notice, main .notice").first).to_have_text(re.compile("deleted|no job"))
    page.goto(f"{server.address}/#/jobs")
    expect(page.locator(".job-row")).to_have_count(1)


def test_user_of_a_cluster_signs_in_with_their_own_token(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer]
) -> None:
    server = dashboard("--cluster_auth")
    api = ApiServer()
    try:
        api.kubeconfig(server.kubeconfig)
        api.submitted()
        api.master(**RUNNING)
        api.said(state="running", targets={"worker": 2}, samples_done=300, samples_total=1000)
        api.users = {"ann-token": {"username": "ann"}}
        api.grants = {("ann", verb, "configmaps", "lab") for verb in ("get", "list")}
        put_training_job(api, "theirs", {"phase": "Pending"}, namespace="other")
        viewer = view()
        page = viewer.page
        page.goto(server.address)
        page.get_by_label("Link or token").fill("wrong")
        page.get_by_role("button", name="Open").click()
        viewer.shows("This token is not accepted.")
        page.get_by_label("Link or token").fill("ann-token")
        page.get_by_role("button", name="Open").click()
        # Of all namespaces, what Ann may see.
        expect(page.locator(".job-row")).to_have_count(1)
        page.get_by_role("link", name="job", exact=True).click()
        viewer.shows("with 0 of 2 workers")
        page.get_by_role("link", name="Cluster").click()
        viewer.shows("ann may not list nodes in all namespaces.")
        assert viewer.problems == []
    finally:
        api.close()


def test_cluster_with_machines_a_queue_and_what_if(
    dashboard: Callable[..., DashboardProcess], view: Callable[..., Viewer]
) -> None:
    server = dashboard()
    api = ApiServer()
    try:
        api.kubeconfig(server.kubeconfig)
        for number in range(12):
            put_node(api, f"node-{number}", unschedulable=number == 11)
            put_pod(api, f"clicks-{number}", node=f"node-{number}", job="clicks")
        decision = {
            "time": "2026-11-16T05:35:09Z",
            "kind": "Shrink",
            "sentence": "Makes room for job images.",
        }
        put_training_job(
            api, "clicks", {"phase": "Running", "decisions": [{**decision, "from": 14, "to": 12}]}
        )
        put_training_job(api, "images", {"phase": "Pending", "message": HOSTILE})
        put_training_job(api, "waits", {})
        viewer = view(viewport={"width": 360, "height": 780}, has_touch=True)
        page = viewer.page
        page.goto(server.link())
        page.get_by_role("link", name="Cluster").click()
        expect(page.locator(".machine")).to_have_count(12)
        viewer.shows("no controller has seen it yet")
        viewer.shows("Makes room for job images.")
        viewer.shows("cordoned", within=".machine-closed")
        page.get_by_label("Search machines").fill("node-11")
        expect(page.locator(".machine")).to_have_count(1)
        page.get_by_role("button", name="Ask the planner").click()
        viewer.shows("No other job would change.")
        put_pod(api, "late", node="node-11", job="images")
        expect(page.locator(".machine .tile")).to_have_count(2)
        assert viewer.fits()
        assert viewer.problems == []
        assert page.evaluate("window.hacked") is None
    finally:
        api.close()
