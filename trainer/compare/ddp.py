"""ddp.py LAYERS RANKS BATCH THREADS [BACKEND]: samples per second of a perceptron in PyTorch, data parallel over gloo or
another backend of torch.distributed, on random data. With one thread, each rank is pinned to its own core. The backend
"none" sums no gradients, though DistributedDataParallel still copies them: no backend can be faster."""
import os
import socket
import sys
import time

os.environ["OMP_NUM_THREADS"] = sys.argv[4] if len(sys.argv) > 4 else "1"
import torch  # noqa: E402: reads the variable when it is loaded
import torch.distributed
import torch.multiprocessing

STEPS = 150


def model_of(sizes):
    """Linear layers with ReLU between."""
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def no_sum(_, bucket):
    """A hook for the gradients of a bucket, which leaves them as they are."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def work(rank, ranks, sizes, batch, threads, backend, port, result):
    """One rank."""
    if threads == 1:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = model_of(sizes)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if backend == "coll":
            import coll_torch  # noqa: F401  registers it
        torch.distributed.init_process_group("gloo" if backend == "none" else backend, rank=rank, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
        if backend == "none":
            model.register_comm_hook(None, no_sum)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    inputs, labels = torch.randn(batch // ranks, sizes[0]), torch.randint(0, sizes[-1], (batch // ranks,))
    for step in range(STEPS + 20):
        if step == 20:
            begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    if rank == 0:
        result.value = STEPS * (batch // ranks) * ranks / (time.perf_counter() - begin)
    if ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    """Starts the ranks, and prints what rank 0 found."""
    sizes = [int(n) for n in sys.argv[1].split(",")]
    ranks, batch, threads = [int(n) for n in sys.argv[2:5]]
    backend = sys.argv[5] if len(sys.argv) > 5 else "gloo"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = torch.multiprocessing.get_context("spawn").Value("d", 0)
    torch.multiprocessing.spawn(work, (ranks, sizes, batch, threads, backend, port, result), nprocs=ranks)
    print(result.value)


if __name__ == "__main__":
    main()
