"""Progress of training and of counted tasks, on a terminal and in a file."""

import io

import pytest
from rich.console import Console

from ggmflow.train import progress
from ggmflow.train.clock import Clock
from ggmflow.train.progress import counting_bar, training_bar
from ggmflow.train.report import Report


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)


def shown(*reports, clock=None):
    console = terminal()
    with training_bar(True, clock, console) as report:
        for entry in reports:
            report(entry)
    return console.file.getvalue()


class Time:
    """A clock that tests set, in place of the module `time`."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def time(monkeypatch):
    by_hand = Time()
    monkeypatch.setattr(progress, "time", by_hand)
    return by_hand


def lines_of(console):
    text = console.file.getvalue()
    assert "\r" not in text and "\x1b" not in text
    return text.splitlines()


def test_the_live_line_has_step_elbo_ess_and_time():
    clock = Clock(compiling=10.0, training=3.0)
    text = shown(Report(25, 100, -12.345, 0.421, 0), Report(50, 100, -11.25, 0.5, 0), clock=clock)
    for part in ("training", "50/100", "ELBO -11.25", "ESS 50%", "0:00:", "left"):
        assert part in text
    assert "skipped" not in text


def test_skipped_steps_are_counted_on_the_live_line():
    assert "skipped 7" in shown(Report(50, 100, -11.25, 0.5, 7))


def test_before_the_first_report_the_line_says_compiling():
    assert "compiling" in shown()


def test_numbers_that_are_not_finite_can_be_shown():
    assert "ELBO nan" in shown(Report(25, 100, float("nan"), float("nan"), 25))


def test_writes_to_standard_error_or_not_at_all(capsys):
    with training_bar(True) as report:
        report(Report(100, 100, -1.0, 0.5, 0))
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 100 of 100" in err
    with training_bar(False) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_the_line_ends_after_an_error():
    console = terminal()
    with pytest.raises(KeyboardInterrupt), training_bar(True, None, console):
        raise KeyboardInterrupt
    with training_bar(True, None, console) as report:  # rich refuses a second live display beside the first
        assert report is not None


# ------------------------------------------------------------------------------------------------------------ time left
def test_time_left_is_known_after_the_first_chunk_and_does_not_count_compiling():
    """25 steps in 3 s leave 9 s for 75 more; a minute of compiling, which comes once, changes nothing."""
    text = shown(Report(25, 100, -12.0, 0.4, 0), clock=Clock(compiling=60.0, training=3.0))
    assert "0:00:09 left" in text
    assert "left" not in shown(clock=Clock(compiling=60.0))  # nothing is known before
    assert "left" not in shown(Report(25, 100, -12.0, 0.4, 0))  # nor without a clock


def test_time_left_counts_down_between_two_reports(time):
    console = terminal()
    with training_bar(True, Clock(training=30.0), console) as report:
        report(Report(25, 100, -12.0, 0.4, 0))
        time.now += 20
    assert "0:01:10 left" in console.file.getvalue()  # of 90 s


def test_a_counted_task_shows_time_left_after_the_first_part(time):
    console = terminal()
    with counting_bar(True, "modes", 4, console) as advance:
        time.now += 5
        advance()
    assert "1/4" in console.file.getvalue() and "0:00:15 left" in console.file.getvalue()


# ---------------------------------------------------------------------------------------------------------- in a file
def test_a_file_gets_plain_lines_at_regular_intervals(time):
    console, clock = Console(file=io.StringIO(), width=40), Clock(compiling=60.0)
    with training_bar(True, clock, console) as report:
        assert lines_of(console) == ["training: compiling"]
        for step in range(25, 1501, 25):  # 8 s for a chunk
            time.now, clock.training = time.now + 8, clock.training + 8
            report(Report(step, 1500, -123.456, 0.5, 0))
            if step == 25:
                assert lines_of(console)[1:] == ["training: step 25 of 1500, ELBO -123.46, ESS 50%, 8 min left"]
    found = lines_of(console)
    assert [int(line.split()[2]) for line in found[1:]] == [25, *range(125, 1501, 100), 1500]  # every 32 s, and the end
    assert found[-2] == "training: step 1425 of 1500, ELBO -123.46, ESS 50%, 24 s left"
    assert found[-1] == "training: step 1500 of 1500, ELBO -123.46, ESS 50%"


def test_the_interval_of_lines_can_be_set(time, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    console = Console(file=io.StringIO())
    with training_bar(True, None, console) as report:
        for step in (25, 50, 75):
            report(Report(step, 100, -1.0, 0.5, 3))
    assert lines_of(console)[1:] == [f"training: step {k} of 100, ELBO -1.00, ESS 50%, skipped 3" for k in (25, 50, 75)]


def test_the_last_line_is_printed_when_training_stops_early(time):
    console = Console(file=io.StringIO())
    with training_bar(True, None, console, "prior") as report:
        for step in (25, 50, 75):
            report(Report(step, 300, -1.0, 0.5, 0))
    assert [line.split(",")[0] for line in lines_of(console)[1:]] == ["prior: step 25 of 300", "prior: step 75 of 300"]


def test_a_counted_task_in_a_file(time):
    console = Console(file=io.StringIO())
    with counting_bar(True, "modes", 100, console) as advance:
        for _ in range(100):
            time.now += 1
            advance()
    found = lines_of(console)
    assert found == [
        "modes: 1 of 100, 99 s left",
        "modes: 31 of 100, 69 s left",
        "modes: 61 of 100, 39 s left",
        "modes: 91 of 100, 9 s left",
        "modes: 100 of 100",
    ]


def test_a_hidden_counted_task_prints_nothing(capsys):
    with counting_bar(False, "modes", 2) as advance:
        advance()
    assert capsys.readouterr() == ("", "")
