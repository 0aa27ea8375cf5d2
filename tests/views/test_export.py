"""Exports: the format is checked before anything is computed."""

import pytest

from ggmflow.errors.advice import Surface, message_of
from ggmflow.errors.argument import UnknownChoiceError
from ggmflow.views.export import export


@pytest.mark.parametrize(("format", "shown"), [("xml", "'xml'"), (["csv"], "of type list")])
def test_an_unknown_format_is_named_as_an_argument_or_an_option(format, shown):
    with pytest.raises(UnknownChoiceError) as caught:
        export(None, "nowhere", format)
    rest = f"format {shown}: choose one of graphml, csv, json, netcdf"
    assert str(caught.value) == f"unknown {rest}"
    assert message_of(caught.value, Surface.COMMAND_LINE) == f"unknown --{rest}"
