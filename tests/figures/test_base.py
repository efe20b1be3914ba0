"""How numbers are written."""

from icl_lab.figures.base import writer


def test_losses_have_three_decimals_rates_and_decades_two_digits():
    assert writer(log_scale=False, rates=False)(1.26149) == "1.261"
    assert writer(log_scale=True, rates=False)(1.26149) == "1.3"
    assert writer(log_scale=False, rates=True)(0.26149) == "0.26"
