"""Interrupts while JAX compiles are deferred."""

import signal

import pytest

from ggmflow.train.interrupt import defer_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_deferred_to_the_end_of_the_block(number):
    """JAX crashes if a signal handler raises inside its compiler; SIGTERM has one in the command line."""
    before, reached = signal.getsignal(signal.SIGINT), []
    default = signal.getsignal(signal.SIGTERM)
    own = signal.signal(number, signal.default_int_handler)  # SIGINT may be ignored if the tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt), defer_interrupts():
            signal.raise_signal(number)
            reached.append(True)
        assert reached and signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, own)
    with defer_interrupts():
        assert signal.getsignal(signal.SIGTERM) is default  # it still ends the process at once
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError), defer_interrupts():
        raise ValueError
    assert signal.getsignal(signal.SIGINT) is before
