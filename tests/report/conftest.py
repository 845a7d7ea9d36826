import shutil

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("processes")


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")  # not longer: Playwright keeps an event loop running, which other tests start, too
def browser():
    """A headless Chromium of the system."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH (Debian: apt-get install chromium): the report's page is not tested")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright: it drives Chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open a page, and fail if anything goes to the console or the network."""
    contexts, trouble = [], []

    def watch_request(request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            trouble.append(request.url)

    def open_page(path, viewport=None, **options):
        context = browser.new_context(viewport=viewport or {"width": 1280, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on("request", watch_request)
        page.goto(path.resolve().as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []
