"""Pre-training of the network: tables, conditions, resumed training, and what is measured of the weights."""

import csv

import jax
import numpy as np
import pytest

from experiments.pretrain import measuring, training
from experiments.pretrain.__main__ import main
from experiments.pretrain.tables import FAMILIES, HELD_OUT, MAX_ROWS, draw_conditions, draw_table, draw_tables
from experiments.pretrain.training import Size

ALL = FAMILIES | HELD_OUT


@pytest.mark.parametrize("d", [3, 12])
@pytest.mark.parametrize("family", ALL)
def test_tables_are_scatter_matrices_of_the_stated_number_of_rows(family, d, rng):
    """Positive semidefinite, of rank at most n − 1 because columns are centred, with diagonal n if standardized."""
    standardized = 0
    for k in range(8):
        asked = 4 if k < 4 else None
        S, n = draw_table(rng, ALL[family](rng, d), asked)
        assert S.shape == (d, d) and 2 <= n <= MAX_ROWS and n == (asked or n)
        np.testing.assert_array_equal(S, S.T)
        eigenvalues = np.linalg.eigvalsh(S)
        assert eigenvalues[0] >= -1e-9 * eigenvalues[-1]
        assert np.sum(eigenvalues > 1e-9 * eigenvalues[-1]) <= min(d, n - 1)
        standardized += np.allclose(np.diag(S), n, rtol=1e-2)
    assert 0 < standardized <= 8


def test_tables_without_rows_stand_for_the_prior(rng):
    tables = draw_tables(rng, 3, 40, prior=0.5)
    assert 0 < np.sum(tables.n == 0) < 40
    assert not tables.scatter[tables.n == 0].any() and all(S.any() for S in tables.scatter[tables.n > 0])


def test_held_out_families_are_not_trained_on(monkeypatch):
    used = set()

    def recording(name, draw):
        return lambda rng, d: (used.add(name), draw(rng, d))[1]

    for families in (FAMILIES, HELD_OUT):
        for name, draw in list(families.items()):
            monkeypatch.setitem(families, name, recording(name, draw))
    for chunk in range(3):
        training.draw_pool(chunk * training.RENEW_AFTER, Size(4, 4, 2, 1.0))
    assert used == set(FAMILIES) and not used & set(HELD_OUT)


def test_conditions_lie_in_the_stated_ranges(rng):
    n = np.repeat([0.0, 2.0, 100.0, 5000.0], 2000)
    log_lam, q, log_temperature = draw_conditions(rng, n).astype(float).T
    relative = log_lam - np.log(np.maximum(n, 1))
    low, high = np.where(n == 0, np.log(0.05), np.log(1e-3)), np.where(n == 0, np.log(50), np.log(3))
    assert np.all(relative >= low - 1e-5) and np.all(relative <= high + 1e-5)
    assert q.min() >= 0.1 and q.max() <= 2
    assert log_temperature.min() >= np.log(0.01) - 1e-5 and log_temperature.max() == 0
    assert not log_temperature[n == 0].any()  # a prior is needed at T = 1 only
    assert log_temperature.min() < np.log(0.011) and q.max() > 1.9 and relative.min() < np.log(2e-3)


def test_the_rate_falls_to_a_fiftieth():
    rates = [training.learning_rate(1.0, chunk, 10, 20) for chunk in (0, 10, 15, 20, 30)]
    np.testing.assert_allclose(rates, [1, 1, 0.51, 0.02, 0.02])


def test_a_state_is_stored_as_numbered_arrays(tmp_path):
    """Files of earlier trainings, whose arrays have these names, can be read."""
    state, path = training.initial_state(), tmp_path / "state.npz"
    training.write_state(path, state._replace(chunk=state.chunk + 7))
    leaves = jax.tree.leaves(state)
    with np.load(path) as arrays:
        assert arrays.files == [f"{k:03d}" for k in range(len(leaves))]
    same = training.read_state(path)
    assert int(same.chunk) == 7
    for one, other in zip(leaves[:-1], jax.tree.leaves(same)[:-1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(training, "SIZES", [Size(4, 2, 3, 1.0)])  # one: each size is compiled
    monkeypatch.setattr(training, "CHUNK", 2)
    monkeypatch.setattr(training, "NUM_TABLES", 6)
    monkeypatch.setattr(training, "RENEW_AFTER", 4)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_resumed_training_gives_the_same_weights(tmp_path, monkeypatch):
    whole = training.train(tmp_path / "whole.npz", 6, 3e-3)
    run_chunk, path = training.run_chunk, tmp_path / "parts.npz"

    def interrupted(state, *more, **options):
        if int(state.chunk) == 3:
            raise KeyboardInterrupt
        return run_chunk(state, *more, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "run_chunk", interrupted)
        training.train(path, 6, 3e-3)
    assert int(training.read_state(path).chunk) == 3
    parts = training.train(path, 6, 3e-3)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_array_equal(one, other)
    start = jax.tree.leaves(training.initial_state().network)
    assert any(np.any(one != other) for one, other in zip(jax.tree.leaves(whole.network), start, strict=True))


@pytest.mark.slow
def test_shipped_weights_are_measured(tmp_path, capsys):
    path = tmp_path / "tables" / "pretrained.csv"
    main(["measure", "--quick", "--output", str(path)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {(row["families"], row["d"], row["s"], row["rows_per_variable"]) for row in rows}
    assert len(rows) == len(kinds) == len(measuring.QUICK_SIZES) * 3 * 2
    for row in rows:
        assert float(row["gap"]) >= 0 and float(row["gap_plain"]) >= 0
        assert 0 < float(row["ess"]) <= 1 and 0 < float(row["ess_plain"]) <= 1
    assert "held out" in capsys.readouterr().out


def test_gap_and_effective_sample_size_of_normal_log_weights(rng):
    """log w ~ N(0, v): gap v/2, ESS exp(−v); 0.02 is 6 standard errors or more, false alarms below 1e-8."""
    quality = measuring.quality_of(rng.normal(scale=0.3, size=100_000))
    np.testing.assert_allclose(quality.log_z - quality.elbo, 0.045, atol=0.02)
    np.testing.assert_allclose(quality.ess, np.exp(-0.09), atol=0.02)
    assert measuring.quality_of(np.array([0.0, np.nan])) == (-np.inf, -np.inf, 0.0)


@pytest.mark.parametrize("arguments", [["measure", "--chunks", "3"], ["train", "--quick", "--chunks", "3"], []])
def test_a_command_has_its_own_options_only(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "usage" in capsys.readouterr().err
