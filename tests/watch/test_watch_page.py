"""The live page in a real browser, during a real run."""

import pytest
from watched_runs import SteppedRun, recorded, served
from webdriver import MISSING, browsing

from potluck.study.presence import Presence, write_presence

pytestmark = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{' and '.join(MISSING)} not found; apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def finished(browser, tmp_path):
    """The page of a run of 80 sites that has recorded 30 of 40 rounds."""
    folder = recorded(tmp_path / "run", 80, 30, 40)
    with served(folder.path) as address:
        browser.open(address)
        browser.wait(lambda: browser.text("#round"), "30 of 40")
        yield browser
    browser.complaints()  # also that the server does not answer any more


def points(browser, chart):
    """How many points each curve of a chart has."""
    script = """return [...document.querySelectorAll(`${arguments[0]} .curve`)]
        .map((curve) => curve.getAttribute("d").split("L").length)"""
    return browser.run(script, chart)


def test_the_page_follows_a_run_from_its_first_round_to_its_last(browser, tmp_path):
    run = SteppedRun(tmp_path / "run")
    with served(run.folder) as address:
        browser.open(address)
        browser.wait(lambda: browser.text("#round"), "1 of 9")
        assert browser.text("#state") == "Running."
        assert browser.text("h1") == "three <b>registries</b>"  # as text, not as markup
        assert browser.text("#present") == "3 of 3"
        run.step(3)
        browser.wait(lambda: points(browser, "#accuracy-chart"), [4])
        assert points(browser, "#loss-chart") == [4]
        assert points(browser, "#sites-chart") == [4, 4]  # the archive has nothing to learn from
        run.step(2)
        browser.wait(lambda: points(browser, "#sites-chart"), [6, 6])
        assert browser.text("#left").endswith("s")
        assert "sat out: <i>archive</i>" in browser.text("#events li")
        run.end()
        browser.wait(lambda: browser.text("#round"), "9 of 9")
        browser.wait(lambda: browser.text("#state").startswith("Finished after"), True)
        assert browser.text("#announcer").startswith("The run is finished. Round 9 of 9, accuracy")
        assert browser.run("return document.querySelector('#progress').value") == 9
        assert browser.complaints() == []
        origins = browser.run(
            "return performance.getEntriesByType('resource').map((e) => new URL(e.name).origin)"
        )
        assert set(origins) == {address.rstrip("/")}


def test_a_site_that_goes_turns_absent_and_one_that_comes_back_present(browser, tmp_path):
    folder = recorded(tmp_path / "run", 3, 2, 9).path
    here = {f"clinic {i}": Presence.now(True) for i in range(3)}
    with served(folder) as address:
        browser.open(address)
        browser.wait(lambda: browser.text("#present"), "3 of 3")
        away = Presence.now(False, "no reply within 120 s")
        write_presence(folder, here | {"clinic 1": away})
        browser.wait(lambda: browser.text("#present"), "2 of 3")
        assert browser.text("#absences") == "Absent: clinic 1."
        rows = browser.run(
            "return [...document.querySelectorAll('#sites tbody tr')].map((r) => r.textContent)"
        )
        assert ["absent since" in row for row in rows] == [False, True, False]
        assert "no reply within 120 s" in rows[1]
        assert browser.text("#announcer") == "clinic 1 is absent: no reply within 120 s."
        write_presence(folder, here)
        browser.wait(lambda: browser.text("#absences"), "Every site is present.")
        assert browser.text("#announcer") == "clinic 1 is back."
        assert browser.text("#events li").endswith("clinic 1 is back")


def test_a_keyboard_reaches_everything_in_the_order_of_the_page(finished):
    reached = []
    for _ in range(8):
        finished.press("tab")
        script = "const e = document.activeElement; return e.id || e.className || e.tagName"
        reached.append(finished.run(script))
    assert reached == ["skip", "cursor", "SUMMARY", "metric", "scroll"] + ["toggle faint"] * 3
    assert finished.run("return document.activeElement.textContent") == "clinic 2"
    finished.press("space")
    assert finished.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    assert finished.count("#sites-chart .curve.s0") == 1
    assert finished.text("#sites-chart .label.s0") == "clinic 2"


def test_arrow_keys_look_back_at_earlier_rounds(finished):
    finished.run("document.querySelector('#cursor').focus()")
    finished.press("left")
    finished.press("left")
    assert finished.text("#cursor-text").startswith("Round 28 of 40, accuracy 94.8 %")
    spoken = finished.run("return document.activeElement.getAttribute('aria-valuetext')")
    assert spoken == finished.text("#cursor-text")


def test_a_screen_reader_finds_landmarks_names_and_tables_behind_the_curves(finished):
    roles = {
        "header": "banner",
        "main": "main",
        "footer": "contentinfo",
        "#progress": "progressbar",
        "#cursor": "slider",
        "#announcer": "status",
        "#log": "log",
        "#accuracy-chart": "image",
        "#sites": "table",
        "main > section": "region",
    }
    assert {selector: finished.role(selector) for selector in roles} == roles
    assert finished.label("#progress") == "Rounds done"
    assert finished.label("#cursor") == "Look at round"
    assert finished.label("#metric") == "Curve of each site"
    assert finished.label("#log") == "What happened"
    alternative = finished.label("#accuracy-chart")
    assert alternative.startswith("Accuracy on the test set over 30 rounds: at first 10.0 %")
    assert "latest 95.8 %" in alternative
    assert finished.run("return document.querySelector('#announcer').ariaLive") == "polite"
    assert finished.count("#rounds tbody tr") == 30
    assert finished.count("#sites tbody th[scope=row]") == 80
    assert finished.count("h1") == 1
    assert finished.count("svg:not([aria-hidden]):not([aria-label])") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_curves_stand_out_from_the_paper(finished, scheme):
    finished.colours(scheme)
    script = """const style = getComputedStyle(document.documentElement);
        return Object.fromEntries(arguments[0].map((n) => [n, style.getPropertyValue(`--${n}`)]))"""
    written = ["ink", "soft", "accent", "bad", "good"]
    drawn = [f"s{i}" for i in range(8)]
    colours = finished.run(script, ["paper", "tile", *written, *drawn])
    for paper in ("paper", "tile"):
        for name in written:
            assert contrast(colours[name], colours[paper]) >= 4.5, name
    for name in drawn:
        assert contrast(colours[name], colours["paper"]) >= 4.5, name  # also labels of curves


@pytest.mark.parametrize("width", [320, 1100])
def test_the_page_never_scrolls_sideways(finished, width):
    finished.width(width)
    script = "return [document.documentElement.scrollWidth, window.innerWidth]"
    wide, room = finished.run(script)
    assert wide <= room == width


def test_a_page_that_gets_no_answer_says_so_and_keeps_what_it_has(browser, tmp_path):
    with served(recorded(tmp_path / "run", 3, 2, 9).path) as address:
        browser.open(address)
        browser.wait(lambda: browser.text("#round"), "2 of 9")
    browser.wait(lambda: browser.text("#problem")[:9], "No answer")
    assert browser.role("#problem") == "alert"
    assert browser.text("#round") == "2 of 9"
    browser.complaints()


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
