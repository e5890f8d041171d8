"""return_intermediate_states as flash-linear-attention has it, against the float64 token loop; and a call as for a graph."""

import numpy as np
import pytest
import token_loop

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")

import gdn2.torch as gt  # noqa: E402

FUNCTIONS = {"gdn2": gt.chunk_gdn2, "kda": gt.chunk_kda}


def sample(rule, T, B=2):
    """Arguments of the rule's function, with the state before, as NumPy arrays."""
    x = token_loop.sample(rule, B=B, T=T)
    return {name: x[name] for name in ("q", "k", "v", *token_loop.RULES[rule])}, x["h0"]


def loop(x, h0, rule, every):
    """The states before every so many tokens, [B, NT, H, K, V]."""
    start = np.zeros_like(h0) if h0 is None else h0
    written = [S for S, _ in token_loop.forward(dict(x, h0=start), rule)[1][1]]
    return np.stack([np.asarray(start, np.float64), *written][: x["q"].shape[1] : every], axis=1)


def call(x, h0, rule, **options):
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in x.items()}
    state = None if h0 is None else torch.from_numpy(np.ascontiguousarray(h0))
    with torch.inference_mode():
        return FUNCTIONS[rule](**tensors, initial_state=state, return_intermediate_states=True, **options)


def close(made, wanted, tolerance=2e-6):
    assert tuple(made.shape) == wanted.shape
    assert np.linalg.norm(made.double().numpy() - wanted) <= tolerance * np.linalg.norm(wanted) and np.abs(wanted).max() > 0.1


@pytest.mark.parametrize("rule", FUNCTIONS)
@pytest.mark.parametrize("T, every", [(1, 64), (64, 64), (65, 64), (200, 64), (200, 32), (48, 16), (49, 16)])
def test_states_before_chunks(rule, T, every):
    x, h0 = sample(rule, T)
    o, last, h = call(x, h0, rule, chunk_size=every, output_final_state=True)
    wanted = loop(x, h0, rule, every)
    assert h.shape[1] == -(-T // every) and h.dtype == torch.float32
    close(h, wanted)
    with pytest.raises(AssertionError):
        close(h, np.roll(wanted, 1, axis=3))
    plain = FUNCTIONS[rule](**{name: torch.from_numpy(value) for name, value in x.items()}, initial_state=torch.from_numpy(h0),
                            output_final_state=True)  # fmt: skip
    assert torch.equal(o, plain[0]) and torch.equal(last, plain[1])
    assert torch.equal(h[:, 0], torch.from_numpy(h0))


def test_without_a_state_before_or_after():
    x, h0 = sample("gdn2", 130)
    o, last, h = call(x, None, "gdn2")
    assert last is None and not h[:, 0].any()
    close(h, loop(x, 0 * h0, "gdn2", 64))


@pytest.mark.parametrize("offsets", [[0, 70, 70, 200], [0, 64, 128, 200], [0, 1, 2, 3, 190], [0, 0, 200, 200]])
def test_packed_sequences(offsets):
    x, _ = sample("kda", 200, B=1)
    h0 = np.random.default_rng(1).normal(size=(len(offsets) - 1, 3, 5, 7)).astype(np.float32)
    _, _, h = call(x, h0, "kda", cu_seqlens=torch.tensor(offsets))
    parts = [loop({name: value[:, a:b] for name, value in x.items()}, h0[n : n + 1], "kda", 64)
             for n, (a, b) in enumerate(zip(offsets, offsets[1:])) if b > a]  # fmt: skip
    close(h, np.concatenate(parts, axis=1))


def test_values_first_and_types():
    x, h0 = sample("kda", 100)
    plain = call(x, h0, "kda")[2]
    turned = call(x, h0.swapaxes(2, 3), "kda", state_v_first=True)[2]
    assert turned.is_contiguous() and torch.equal(turned.transpose(3, 4), plain)
    narrow = {name: torch.from_numpy(value).bfloat16() for name, value in x.items()}
    with torch.inference_mode():
        h = gt.chunk_kda(**narrow, initial_state=torch.from_numpy(h0), return_intermediate_states=True)[2]
        wide = gt.chunk_kda(**{name: y.float() for name, y in narrow.items()}, initial_state=torch.from_numpy(h0),
                            return_intermediate_states=True)[2]  # fmt: skip
    assert h.dtype == torch.bfloat16 and torch.equal(h, wide.bfloat16())
    double = call({name: value.astype(np.float64) for name, value in x.items()}, h0, "kda")[2]
    assert double.dtype == torch.float64
    close(double, loop(x, h0, "kda", 64), 1e-13)


def test_no_tokens():
    x, h0 = sample("gdn2", 64)
    o, last, h = call({name: value[:, :0] for name, value in x.items()}, h0, "gdn2", output_final_state=True)
    assert o.shape == (2, 0, 3, 7) and h.shape == (2, 0, 3, 5, 7) and torch.equal(last, torch.from_numpy(h0))


def test_compiled():
    x, h0 = sample("gdn2", 130)
    tensors = {name: torch.from_numpy(value) for name, value in x.items()}

    def run(tensors, state):
        return gt.chunk_gdn2(**tensors, initial_state=state, return_intermediate_states=True)

    with torch.inference_mode():
        wanted = run(tensors, torch.from_numpy(h0))
        made = torch.compile(run, backend="eager")(tensors, torch.from_numpy(h0))
    assert torch.equal(made[2], wanted[2]) and torch.equal(made[0], wanted[0])


def test_disable_recompute_is_refused():
    x, h0 = sample("gdn2", 20)
    with pytest.raises(ValueError, match="disable_recompute is True; it must be False with return_intermediate_states"):
        call(x, h0, "gdn2", disable_recompute=True)


def test_graph():
    """One padded call serves batches of any number of sequences up to the largest; it follows what cu_seqlens holds."""
    x, _ = sample("kda", 50, B=1)
    tensors = {name: torch.from_numpy(value) for name, value in x.items()}
    offsets = torch.tensor([0, 20, 50, 50, 50])
    for cut in (20, 33):
        offsets[1] = cut
        rest = dict(output_final_state=True, initial_state=torch.zeros(4, 3, 5, 7))
        o, last = gt.chunk_kda(**tensors, **rest, cu_seqlens=offsets, use_graph=True, max_num_seqs=4)
        wanted, ends = gt.chunk_kda(**tensors, output_final_state=True, cu_seqlens=torch.tensor([0, cut, 50]))
        assert torch.equal(o, wanted) and torch.equal(last[:2], ends) and not last[2:].any()
    assert torch.equal(gt.chunk_kda(**tensors, use_graph=True)[0], gt.chunk_kda(**tensors, max_num_seqs=3)[0])
