"""The published Conditional Matrix Flow, built from `flowcon` and trained on the CPU: E_q[log q(Ω) − log p̃(Ω)] → min.

`experiments.paper.runtime.published_flow` runs this file in a separate environment without ggmflow. torch and flowcon
are not installed elsewhere, so both are imported where they are used:

    python -I published_torch.py problem.npz draws.npz '{"layers": 10, ...}'

It reads S, n, the ranges and the points from the first file, trains for the given wall time, writes draws at the points
to the second, and reports on standard output, one JSON object a line. The flow, from noise to Ω:

    N(0, I) → layers × (masked autoregressive Sum-of-Sigmoids, ActNorm) → fill-triangular → softplus diagonal → LLᵀ

Every map, the base distribution and the network that embeds (log₁₀ λ, q) are flowcon's classes; the target is ours.
"""

import json
import statistics
import sys
import time

import numpy as np

WARMUP = 2  # steps left out of the timing
TIMED = 5  # at least; taken after the draws where the wall time has not allowed them


class MatrixFlow:
    """Conditional flow over precision matrices, written from noise to Ω, the direction that training needs.

    Parameters
    ----------
    n_features : int
        d; the flow has D = d(d+1)/2 coordinates.
    layers, blocks, hidden, sigmoids, context : int
        Autoregressive layers, residual blocks in each, their width, sigmoids per coordinate, width of the embedding.
    """

    def __init__(self, n_features, layers, blocks, hidden, sigmoids, context):
        from flowcon import transforms  # pyright: ignore[reportMissingImports]
        from flowcon.distributions import StandardNormal  # pyright: ignore[reportMissingImports]
        from flowcon.nn.nets import ResidualNet  # pyright: ignore[reportMissingImports]
        from torch.nn import ModuleList  # pyright: ignore[reportMissingImports]

        D = n_features * (n_features + 1) // 2
        maps = []
        for _ in range(layers):
            maps.append(
                transforms.MaskedSumOfSigmoidsTransform(
                    D, hidden_features=hidden, n_sigmoids=sigmoids, context_features=context, num_blocks=blocks
                )
            )
            maps.append(transforms.ActNorm(D))
        to_factor = [transforms.FillTriangular(features=D), transforms.TransformDiagonalSoftplus(n_features)]
        self.base = StandardNormal([D])
        self.embedding = ResidualNet(in_features=2, out_features=context, hidden_features=64, num_blocks=5)
        self.factor = transforms.CompositeTransform([*maps, *to_factor])
        self.product = transforms.CholeskyOuterProduct(n_features, checkargs=False)
        self.modules = ModuleList([self.base, self.embedding, self.factor, self.product])

    def draw(self, lam, q):
        """One draw per condition: L, Ω = LLᵀ and log q(Ω) with respect to Lebesgue measure on the entries of Ω."""
        import torch  # pyright: ignore[reportMissingImports]

        noise, log_q = self.base.sample_and_log_prob(len(lam))
        condition = self.embedding(torch.stack([torch.log10(lam), q], dim=1))
        L, log_det_factor = self.factor(noise, condition)
        Omega, log_det_product = self.product(L)
        return L, Omega, log_q - log_det_factor - log_det_product


def unnormalized_log_prob(L, Omega, S, n, lam, q):
    """The density of `model.target` at T = 1 for a batch: n Σ log ℓ_j − ½ tr(Lᵀ(S + λI)L) − λ Σ_{i>j} |ω_ij|^q."""
    import torch  # pyright: ignore[reportMissingImports]

    row, col = torch.tril_indices(len(S), len(S), offset=-1)
    off_diagonal = Omega[:, row, col]
    nonzero = off_diagonal != 0  # keeps 0·∞ out of the gradient
    powers = torch.exp(q[:, None] * torch.log(torch.where(nonzero, off_diagonal, 1.0).abs())) * nonzero
    log_likelihood = n * L.diagonal(dim1=1, dim2=2).log().sum(1) - 0.5 * (L * (S @ L)).sum((1, 2))
    return log_likelihood - lam * (0.5 * L.square().sum((1, 2)) + powers.sum(1))


class Trainer:
    """Adam with the published learning rate, decay and clipping; conditions uniform in (log λ, q)."""

    def __init__(self, flow, problem, batch):
        import torch  # pyright: ignore[reportMissingImports]

        self.flow, self.batch = flow, batch
        self.S = torch.tensor(problem["scatter"], dtype=torch.float32)
        self.n = float(problem["n"])
        self.log_lam, self.q = np.log(problem["lam_range"]).tolist(), problem["q_range"].tolist()
        self.optimizer = torch.optim.Adam(flow.modules.parameters(), lr=1e-3)
        self.decay = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=400, gamma=0.95)
        self.seconds, self.cpu_seconds = [], []

    def step(self):
        """Minimize log q − log p̃ by one step, and report its mean over the batch."""
        import torch  # pyright: ignore[reportMissingImports]

        begin, cpu_begin = time.perf_counter(), time.process_time()
        lam = torch.empty(self.batch).uniform_(*self.log_lam).exp()
        q = torch.empty(self.batch).uniform_(*self.q)
        L, Omega, log_q = self.flow.draw(lam, q)
        loss = (log_q - unnormalized_log_prob(L, Omega, self.S, self.n, lam, q)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.flow.modules.parameters(), 1.0)
        self.optimizer.step()
        self.decay.step()
        self.seconds.append(time.perf_counter() - begin)
        self.cpu_seconds.append(time.process_time() - cpu_begin)
        if not np.isfinite(loss.item()):
            raise FloatingPointError(f"the loss is {loss.item()} at step {len(self.seconds)}")
        report("step", step=len(self.seconds), loss=loss.item())


def evaluate(flow, problem, num_draws):
    """Draws at every point: L, log q and, for comparison with ggmflow's, log p̃; all in float64 after the flow.

    Also the seconds of the flow's part, point by point.
    """
    import torch  # pyright: ignore[reportMissingImports]

    S, n = torch.tensor(problem["scatter"]), float(problem["n"])
    columns, log_q, log_target, seconds = [], [], [], []
    flow.modules.eval()
    with torch.no_grad():
        for point in problem["points"]:
            lam, q = (torch.full((num_draws,), value) for value in point.tolist())
            begin = time.perf_counter()
            L, _, log_prob = flow.draw(lam, q)
            seconds.append(time.perf_counter() - begin)
            L = L.double()
            columns.append(L.numpy())
            log_q.append(log_prob.double().numpy())
            log_target.append(unnormalized_log_prob(L, L @ L.mT, S, n, lam.double(), q.double()).numpy())
    flow.modules.train()
    return np.stack(columns), np.stack(log_q), np.stack(log_target), seconds


def report(event, **values):
    """One line of JSON to the parent process."""
    print(json.dumps({"event": event} | values), flush=True)


def main(problem_file, draws_file, settings):
    """Train for the wall time, write the draws, then time further steps if there were too few."""
    import torch  # pyright: ignore[reportMissingImports]

    with np.load(problem_file, allow_pickle=False) as archive:
        problem = dict(archive)
    seconds, batch, num_draws = (settings.pop(name) for name in ("seconds", "batch", "num_draws"))
    torch.manual_seed(0)
    flow = MatrixFlow(len(problem["scatter"]), **settings)
    trainer = Trainer(flow, problem, batch)

    begin = time.perf_counter()
    # A step that would end after the wall time is not begun.
    while time.perf_counter() - begin + (trainer.seconds[-1] if trainer.seconds else 0.0) < seconds:
        trainer.step()
    steps, spent = len(trainer.seconds), time.perf_counter() - begin

    columns, log_q, log_target, draw_seconds = evaluate(flow, problem, num_draws)
    np.savez(draws_file, columns=columns, log_q=log_q, log_target=log_target)
    while len(trainer.seconds) < WARMUP + TIMED:
        trainer.step()
    report(
        "result",
        parameters=sum(weight.numel() for weight in flow.modules.parameters() if weight.requires_grad),
        steps=steps,
        seconds=spent,
        seconds_per_step=statistics.median(trainer.seconds[WARMUP:]),
        draws_per_second=num_draws / statistics.median(draw_seconds),
        cores=sum(trainer.cpu_seconds[WARMUP:]) / sum(trainer.seconds[WARMUP:]),
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except FloatingPointError as error:
        report("failed", message=str(error))
