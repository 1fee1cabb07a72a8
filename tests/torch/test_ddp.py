"""DistributedDataParallel over libcoll gives what it gives over gloo."""
import unittest

import torch
import torch.distributed as dist
from support_ranks import DEVICES, LIMIT, main, nranks, rank
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer

GLOO = dist.new_group(timeout=LIMIT, backend="gloo")
STEPS = 12


def model_of(device):
    """A network with parameters in several buckets, and buffers that DDP broadcasts."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(),
                               torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5)).to(device)


def losses(group, device="cpu", hook=None, optimizer=torch.optim.SGD, steps=STEPS, **options):
    """The losses of some steps on this rank's data."""
    model = torch.nn.parallel.DistributedDataParallel(model_of(device), process_group=group, bucket_cap_mb=0.1, **options)
    if hook:
        hook(model, group)
    method = optimizer(model.parameters(), lr=0.05)
    torch.manual_seed(100 + rank)
    found = []
    for step in range(steps):
        inputs, labels = torch.randn(16, 20).to(device), torch.randint(0, 5, (16,)).to(device)
        method.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        method.step()
        found.append(loss.item())
    weights = torch.cat([one.detach().flatten() for one in model.parameters()]).cpu()
    return found, weights


class Training(unittest.TestCase):
    def alike(self, ours, theirs, exactly):
        same = ours[0] == theirs[0] if exactly else torch.allclose(torch.tensor(ours[0]), torch.tensor(theirs[0]), rtol=1e-3)
        self.assertTrue(same, f"{ours[0]} over libcoll, {theirs[0]} over gloo")
        weights = [torch.empty_like(ours[1]) for _ in range(nranks)]
        dist.all_gather(weights, ours[1])
        for one in weights:
            self.assertTrue(torch.equal(one, weights[0]), "ranks have different weights")
        self.assertNotAlmostEqual(ours[0][0], ours[0][-1], 3)

    def test_losses(self):
        self.alike(losses(None), losses(GLOO), nranks == 2)  # a sum of two has one order

    def test_options(self):
        for options in ({"find_unused_parameters": True}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
            self.alike(losses(None, **options), losses(GLOO, **options), nranks == 2)

    def test_compressed(self):
        def hook(model, group):
            model.register_comm_hook(group, default_hooks.fp16_compress_hook)

        self.alike(losses(None, hook=hook), losses(GLOO, hook=hook), False)

    def test_power_sgd(self):
        """Its callbacks start operations and wait for them."""
        def hook(model, group):
            state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=4)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

        self.alike(losses(None, hook=hook), losses(GLOO, hook=hook), False)

    def test_zero(self):
        def optimizer(parameters, lr):
            return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=lr)

        self.alike(losses(None, optimizer=optimizer), losses(GLOO), False)

    @unittest.skipUnless("cuda" in DEVICES, "no GPU")
    def test_on_a_gpu(self):
        self.alike(losses(None, "cuda"), losses(GLOO), False)


if __name__ == "__main__":
    main()
