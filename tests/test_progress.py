"""The live line of training: what it says, where, and that it can be silent."""

import io

from rich.console import Console

from ggmflow.progress import training_bar
from ggmflow.train import Report


def shown(*reports):
    console = Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)
    with training_bar(True, console) as report:
        for entry in reports:
            report(entry)
    return console.file.getvalue()


def test_says_step_elbo_ess_and_time():
    text = shown(Report(25, 100, -12.345, 0.421, 0), Report(50, 100, -11.25, 0.5, 0))
    for part in ("training", "50/100", "ELBO -11.25", "ESS 50%", "0:00:", "left"):
        assert part in text
    assert "skipped" not in text


def test_says_how_many_steps_were_skipped():
    assert "skipped 7" in shown(Report(50, 100, -11.25, 0.5, 7))


def test_says_that_it_compiles_before_the_first_report():
    assert "compiling" in shown()


def test_numbers_that_are_not_finite_can_be_shown():
    assert "ELBO nan" in shown(Report(25, 100, float("nan"), float("nan"), 25))


def test_writes_to_standard_error_or_not_at_all(capsys):
    with training_bar(True) as report:
        report(Report(100, 100, -1.0, 0.5, 0))
    out, err = capsys.readouterr()
    assert out == ""
    assert "100/100" in err
    with training_bar(False) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_the_line_is_cleaned_up_after_an_error(capsys):
    try:
        with training_bar(True):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    with training_bar(True) as report:  # a second live display would be refused if the first were still there
        assert report is not None
