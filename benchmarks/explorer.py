"""How long the explorer takes to redraw while a slider moves: ``python -m benchmarks.explorer``.

Server time of one move, from the new (λ, q) to the message for the browser: draws of the flow, weights, intervals,
edges by the default rule, and the data of all panels. Training does not change it, so the flow is trained only briefly.
"""

import argparse
import time

import numpy as np
from bokeh.document import Document

import ggmflow as gf
from ggmflow import views
from ggmflow.explorer import prepare
from ggmflow.explorer.session import Session


def main() -> None:
    """Print the median and the 95 % quantile of the time of a move."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-features", type=int, default=30)
    parser.add_argument("--moves", type=int, default=60)
    arguments = parser.parse_args()
    X, _ = gf.simulate.toy_problem(arguments.n_features, 100, random_state=0)
    model = gf.GraphicalFlow(steps=100, random_state=0, progress=False).fit(X)
    session = Session(Document(), prepare(model, evidence=False))
    rng = np.random.default_rng(0)
    session.redraw()
    wall, here = [], []
    for _ in range(arguments.moves):
        session.lam.value = float(rng.uniform(session.lam.start, session.lam.end))
        session.q.value = float(rng.uniform(*model.q_range_))
        start, start_here = time.perf_counter(), time.thread_time()
        session.redraw()
        wall.append(time.perf_counter() - start)
        here.append(time.thread_time() - start_here)
    few, many = (views.num_draws_of(model, quick) for quick in (True, False))
    start = time.perf_counter()
    session.redraw(at_rest=True)
    rest = time.perf_counter() - start
    median, tail = 1000 * np.quantile(wall, [0.5, 0.95])
    print(f"d = {arguments.n_features}, {few} draws: {median:.0f} ms a move (95 % below {tail:.0f} ms),")
    print(f"of which {1000 * np.median(here):.0f} ms in Python's thread; at rest, {many} draws: {1000 * rest:.0f} ms")


if __name__ == "__main__":
    main()
