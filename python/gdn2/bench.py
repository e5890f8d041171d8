"""What a call costs beyond the C library, and what patching a transformers model gains.

    python -m gdn2.bench [--threads N] [--tokens T] [--decode N] [--train T] [--skip NAME...]

Parts whose framework is not installed are left out, and said so. NAME: numpy, torch, jax, transformers.
"""

import argparse
import importlib.util
import statistics
import time

import numpy as np

import gdn2
from gdn2 import _arrays
from gdn2._layout import ABSENT, FORWARD, NO_STATES
from gdn2._library import check, load
from gdn2._problem import Inputs, Options, problem

_K = 8
_BOUNDS = {"numpy": 15, "torch": 40, "jax": 60}


def microseconds(call, batch=10, batches=1000):
    """The best of many short batches, per call: what it takes while nothing else runs."""
    best = float("inf")
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        best = min(best, (time.perf_counter() - begin) / batch)
    return 1e6 * best


def small():
    """One token of one head of Gated DeltaNet-2 with a state."""
    r = np.random.default_rng(0)
    names = dict.fromkeys(("q", "k", "v", "g", "b", "w"), (1, 1, 1, _K)) | {"h0": (1, 1, _K, _K)}
    return {name: -np.abs(r.normal(size=shape)).astype(np.float32) for name, shape in names.items()}


def c_time(x):
    """The call of the library alone, with everything prepared."""
    keep = []
    _, head = problem(_arrays, Inputs(**x), Options(), keep)
    o, h = np.empty((1, 1, 1, _K), np.float32), np.empty((1, 1, _K, _K), np.float32)
    outputs = (*_arrays.output(o, "o"), *_arrays.state_output(h, "h"))
    packed = FORWARD.packed.pack(FORWARD.size, head, *outputs, *NO_STATES, 0, *ABSENT, 1, 0, 0, 0)
    library = load()
    check(library.gdn2_forward(packed))
    return microseconds(lambda: library.gdn2_forward(packed)) - microseconds(lambda: library.gdn2_threads(1))


def numpy_call(x):
    return lambda: gdn2.forward(**x, threads=1)


def torch_call(x):
    import torch

    from gdn2.torch import chunk_gdn2

    h0 = torch.from_numpy(x["h0"])
    tensors = [torch.from_numpy(x[name]) for name in ("q", "k", "v", "g", "b", "w")]
    return lambda: chunk_gdn2(*tensors, initial_state=h0, output_final_state=True)


def jax_call(x):
    import jax

    from gdn2.jax import chunk_gdn2

    tensors = [jax.numpy.asarray(x[name]) for name in ("q", "k", "v", "g", "b", "w")]
    h0 = jax.numpy.asarray(x["h0"])
    compiled = jax.jit(lambda *tensors: chunk_gdn2(*tensors, initial_state=h0, output_final_state=True))
    return lambda: jax.block_until_ready(compiled(*tensors))


def overheads(skip):
    """The table of what a call costs."""
    x = small()
    print(f"A call of one token, one head, K = V = {_K}, with a state; microseconds, best of many\n")
    base = c_time(x)
    print(f"{'':12}{'call':>10}{'C':>10}{'beyond':>10}{'aim':>10}")
    for name, make in (("numpy", numpy_call), ("torch", torch_call), ("jax", jax_call)):
        if name in skip:
            continue
        if importlib.util.find_spec(name) is None:
            print(f"{name:12}{'not installed':>20}")
            continue
        total = microseconds(make(x))
        print(f"{name:12}{total:10.1f}{base:10.1f}{total - base:10.1f}{_BOUNDS[name]:10}")


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def in_turns(before, after, repeats):
    """Medians of two measurements that take turns, after one of each to warm up."""
    times = [(before(), after()) for _ in range(1 + repeats)]
    return [statistics.median(column) for column in zip(*times[1:])]


def rule_alone(layer, tokens):
    """The rule of a layer, as the model calls it: (before, after) measurements in seconds."""
    import inspect
    import sys

    import torch

    from gdn2.torch import chunk_gated_delta_rule

    original = sys.modules[inspect.unwrap(type(layer).forward).__module__].torch_chunk_gated_delta_rule
    q, k = (torch.randn(1, tokens, layer.num_k_heads, layer.head_k_dim) for _ in range(2))
    v = torch.randn(1, tokens, layer.num_v_heads, layer.head_v_dim)
    g, beta = -torch.rand(1, tokens, layer.num_v_heads), torch.rand(1, tokens, layer.num_v_heads)
    return (
        lambda: timed(lambda: original(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)),
        lambda: timed(lambda: chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)),
    )


def decode(model, prompt, count):
    """Seconds per token after a prompt, on its cache."""
    import torch

    cache = model(prompt, use_cache=True).past_key_values
    token = torch.zeros(1, 1, dtype=torch.long)
    model(token, cache=cache, use_cache=True)
    return timed(lambda: [model(token, cache=cache, use_cache=True) for _ in range(count)]) / count


def training_step(model, ids):
    import torch

    model.zero_grad()
    with torch.enable_grad():
        return timed(lambda: model(ids, labels=ids).loss.backward())


def realistic(layers):
    """A Qwen3.5 model with layers as wide as those of Qwen3-Next, and few of them."""
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

    sizes = dict(
        hidden_size=2048, intermediate_size=4096, num_hidden_layers=layers, vocab_size=1024, max_position_embeddings=8192
    )
    heads = dict(num_attention_heads=16, num_key_value_heads=2, head_dim=256)
    linear = dict(linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128)
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**sizes, **heads, **linear, pad_token_id=0, bos_token_id=1, eos_token_id=2))


def measures(model, options):
    """[(name, repeats, before, after, tokens)]; before and after measure seconds, without and with the patch."""
    import torch

    import gdn2.transformers as gt

    layer = next(module for module in model.modules() if hasattr(module, "A_log"))
    T, count = options.tokens, options.train
    x, prompt, text = torch.randn(1, T, layer.hidden_size), torch.randint(3, 1000, (1, T)), torch.randint(3, 1000, (1, count))

    def both(measure):
        return lambda: (gt.unpatch(model), measure())[1], lambda: (gt.patch(model), measure())[1]

    return (
        (f"rule alone, {T} tokens", 5, *rule_alone(layer, T), T),
        (f"linear layer, {T} tokens", 3, *both(lambda: timed(lambda: layer(x))), T),
        (f"model, prefill of {T} tokens", 1, *both(lambda: timed(lambda: model(prompt, use_cache=True))), T),
        (f"model, {options.decode} tokens decoded", 1, *both(lambda: decode(model, prompt[:, :64], options.decode)), 1),
        (f"model, training step of {count} tokens", 1, *both(lambda: training_step(model, text)), count),
    )


def transformers_table(options):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    model = realistic(layers=4).eval()
    layers = "3 linear layers and 1 other, 16 key and 32 value heads of 128"
    print(f"\nQwen3.5, hidden 2048, {layers}, float32, {torch.get_num_threads()} threads; tokens a second\n")
    print(f"{'':40}{'before':>12}{'patched':>12}{'times':>8}")
    for name, repeats, before, after, tokens in measures(model, options):
        with torch.no_grad():
            slow, fast = in_turns(before, after, repeats)
        print(f"{name:40}{tokens / slow:12.1f}{tokens / fast:12.1f}{slow / fast:8.1f}")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m gdn2.bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=0, help="threads of PyTorch for the models; 0: its own choice")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a prompt (default: %(default)s)")
    parser.add_argument("--decode", type=int, default=32, help="tokens decoded (default: %(default)s)")
    parser.add_argument("--train", type=int, default=512, help="tokens of a training step (default: %(default)s)")
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=("numpy", "torch", "jax", "transformers"), help="parts to leave out"
    )
    options = parser.parse_args(arguments)
    overheads(options.skip)
    if "transformers" in options.skip:
        return
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"\ntransformers models: {' and '.join(missing)} not installed")
    else:
        transformers_table(options)


if __name__ == "__main__":
    main()
