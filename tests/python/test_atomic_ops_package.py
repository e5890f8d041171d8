"""gdn2.atomic_ops as a package: names, signatures, configurations, errors, clips, diagnostics, and training steps with it.
What can be, is compared with atomic-ops 0.1.0."""

import dataclasses
import importlib
import inspect
import os
import subprocess
import sys

import pytest

seed = pytest.importorskip("atomic_ops", reason="atomic-ops 0.1.0 is not installed")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import token_loop  # noqa: E402
from atomic_ops import configs as seed_configs  # noqa: E402

from gdn2 import atomic_ops  # noqa: E402
from gdn2.atomic_ops import configs, gdn2_bwd, gdn2_fwd  # noqa: E402

MODULES = ("configs", "utils", "reference", "fallback", "gdn2_fwd", "gdn2_bwd", "gdn2_pipeline")


def test_names():
    assert len(seed.__all__) == 14
    assert set(atomic_ops.__all__) == set(seed.__all__) | {"gdn2_pallas_forward_with_residuals"}
    assert atomic_ops.__version__
    for name in atomic_ops.__all__:
        assert hasattr(atomic_ops, name), name


def test_signatures():
    """Same parameters, in the same order, with the same defaults, in every module."""
    compared = 0
    for module in MODULES:
        theirs = importlib.import_module(f"atomic_ops.{module}")
        mine = importlib.import_module(f"gdn2.atomic_ops.{module}")
        for name, function in inspect.getmembers(theirs, inspect.isfunction):
            if name.startswith("_") or function.__module__ != theirs.__name__:
                continue
            wanted = [(p.name, repr(p.default), p.kind) for p in inspect.signature(function).parameters.values()]
            made = [(p.name, repr(p.default), p.kind) for p in inspect.signature(getattr(mine, name)).parameters.values()]
            assert made == wanted, f"{module}.{name}"
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("name", ["KAGGLE_SMALL", "KAGGLE_MEDIUM", "KAGGLE_LARGE", "DEFAULT_CONFIG"])
def test_presets(name):
    mine, theirs = getattr(atomic_ops, name), getattr(seed, name)
    assert dataclasses.asdict(mine) == dataclasses.asdict(theirs)
    assert (mine.n_sub, mine.n_micro) == (theirs.n_sub, theirs.n_micro)


def test_configurations():
    assert dataclasses.asdict(atomic_ops.KernelConfig()) == dataclasses.asdict(seed.KernelConfig())
    assert atomic_ops.DEFAULT_CONFIG == atomic_ops.KAGGLE_MEDIUM
    assert hash(atomic_ops.KernelConfig()) == hash(atomic_ops.KernelConfig(bt=256))
    changed = dataclasses.replace(atomic_ops.KAGGLE_LARGE, clip=7.0)
    assert changed.clip == 7.0 and changed.bt == 256
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.clip = 1.0
    wrong = [dict(bt=100, bc=64), dict(bt=256, bc=64), dict(mb=24, bt=64, bc=32), dict(wy_eps=1.0), dict(wy_eps=-0.1)]
    for options in wrong:
        for package in (seed, atomic_ops):
            with pytest.raises(ValueError, match=next(iter(options))):
                package.KernelConfig(**options)


def test_memory_and_recommendation():
    assert not atomic_ops.is_tpu_available()
    recommended = set()
    for batch, length, heads, d_head in ((1, 512, 6, 128), (4, 4096, 6, 128), (8, 4096, 6, 128), (3, 1000, 5, 64)):
        sizes = batch, length, heads, d_head
        assert atomic_ops.estimate_memory(*sizes) == pytest.approx(seed.estimate_memory(*sizes), rel=1e-12)
        options = dict(bt=128, bytes_per_param=2)
        assert atomic_ops.estimate_memory(*sizes, **options) == pytest.approx(seed.estimate_memory(*sizes, **options), rel=1e-12)
        mine, theirs = atomic_ops.get_recommended_config(*sizes), seed.get_recommended_config(*sizes)
        assert dataclasses.asdict(mine) == dataclasses.asdict(theirs)
        recommended.add(mine)
    for batch in (30, 60):
        theirs = seed.get_recommended_config(batch, 8192, 6)
        assert dataclasses.asdict(atomic_ops.get_recommended_config(batch, 8192, 6)) == dataclasses.asdict(theirs)
        recommended.add(atomic_ops.get_recommended_config(batch, 8192, 6))
    assert len(recommended) > 1


def test_clips():
    x = jnp.asarray([np.nan, np.inf, -np.inf, 5.0, -6e3, 1e9, 0.0])
    for clip in (1e4, 5e3):
        mine, theirs = atomic_ops.KernelConfig(clip=clip), seed.KernelConfig(clip=clip)
        for name in ("sanitize", "sanitize_h0", "clip_acc"):
            np.testing.assert_array_equal(getattr(configs, name)(x, mine), getattr(seed_configs, name)(x, theirs))


def wrong_shapes():
    good = dict.fromkeys("qkvwbg", (1, 256, 2, 128)) | dict(h0=None)
    yield "q", good | dict(q=(256, 2, 128))
    yield "128", good | dict.fromkeys("qkvwbg", (1, 256, 2, 64))
    yield "256", good | dict.fromkeys("qkvwbg", (1, 250, 2, 128))
    for name in "kvwbg":
        yield name, good | {name: (1, 256, 2, 64)}
    yield "h0", good | dict(h0=(1, 2, 128, 64))


@pytest.mark.parametrize("name, shapes", list(wrong_shapes()))
def test_errors(name, shapes):
    """Where the seed raises, so do the functions here, with a sentence that names the tensor or the number."""
    x = {tensor: None if shape is None else jnp.zeros(shape) for tensor, shape in shapes.items()}
    tokens = [x[tensor] for tensor in "qkvwbg"]
    with pytest.raises(ValueError, match=name):
        seed_configs.validate_inputs(*tokens, 0.1, x["h0"], seed.DEFAULT_CONFIG)
    with pytest.raises(ValueError, match=name):
        configs.validate_inputs(*tokens, 0.1, x["h0"], atomic_ops.DEFAULT_CONFIG)
    for function in ("gdn2_pallas_forward", "gdn2_pallas_forward_trainable", "gdn2_pallas_forward_with_residuals"):
        with pytest.raises(ValueError):
            getattr(atomic_ops, function)(*tokens, 0.1, h0=x["h0"])


def test_shapes_that_fit():
    q = jnp.zeros((2, 512, 4, 128))
    assert configs.validate_inputs(q, q, q, q, q, q, 0.1, None, atomic_ops.DEFAULT_CONFIG) == (2, 512, 4, 128, 2)
    with pytest.raises(ValueError, match="chunk_size=100"):
        atomic_ops.gdn2_chunked_wy_reference(q, q, q, q, q, q, 0.1, 100)


def test_every_kernel_obeys_the_clip():
    """Huge inputs: no value leaves a kernel above its configuration's clip, and another clip gives another result."""
    r = np.random.default_rng(1)
    bt, d = 32, 16
    tight, loose = (atomic_ops.KernelConfig(bt=bt, bc=16, mb=8, clip=clip) for clip in (5e3, 1e4))

    def huge(*shape, size=3e3):
        return jnp.asarray(r.normal(size=shape) * size, jnp.float32)

    tokens = lambda: huge(1, bt, 1, d)  # noqa: E731
    chunk = lambda: huge(1, 1, 1, bt, d)  # noqa: E731
    score = jnp.tril(huge(1, 1, 1, bt, bt))
    strict, state = jnp.tril(score, -1), huge(1, 1, d, d)
    q, k, v, w, b = (tokens() for _ in range(5))
    g, last, flat = jnp.zeros((1, bt, 1, d)), jnp.zeros((1, 1, 1, d)), jnp.zeros((1, 1, 1, bt, d))
    q_c, k_c, v_c, w_c, b_c, u, kg, qg, do, dv = (chunk() for _ in range(10))
    calls = {
        "A": lambda c: gdn2_fwd.build_chunk_scores_pallas(q, k, b, g, 1.0, c),
        "B": lambda c: [gdn2_fwd.wy_solve_pallas(strict, c)],
        "C": lambda c: gdn2_fwd.recompute_wy_pallas(q * 9, k * 9, v, w, b, g, score, c)[:4],
        "D": lambda c: gdn2_fwd.gdn2_inter_chunk_combine(score, w_c, u, kg, qg, last, 1.0, h0=state, config=c),
        "B1": lambda c: gdn2_bwd.gdn2_dhu_backward(do, dv, w_c, qg, kg, last, 1.0, dht=state, config=c),
        "B2": lambda c: gdn2_bwd.dav_backward_pallas(score, u, do, c),
        "B3": lambda c: gdn2_bwd.wy_dqkg_backward_pallas(
            q_c, k_c, b_c, w_c, v_c, flat, score, strict, state[:, :, None], u, do, dv, state[:, :, None], 1.0, c
        ).values(),
        "B4": lambda c: gdn2_bwd.intra_backward_pallas(score, strict, q, k, b, g, 1.0, c),
        "B5": lambda c: [gdn2_bwd.reverse_cumsum_bwd(do, bt, c)],
    }
    for kernel, call in calls.items():
        for low, high in zip(call(tight), call(loose), strict=True):
            assert jnp.max(jnp.abs(low)) == 5e3, kernel
            assert jnp.max(jnp.abs(high)) == 1e4, kernel


def test_diagnostics(monkeypatch, capfd):
    """The lines of the seed's own function on the values of the stages, and no others."""
    x = jnp.ones((1, 32, 1, 128))
    config = atomic_ops.KernelConfig(bt=32, bc=16, mb=16, clip=1e9)
    arguments = (x * 100, x * 100, x, x, x, 0 * x, 1.0)
    o, h_final, kept = atomic_ops.gdn2_pallas_forward_with_residuals(*arguments, config=config)
    assert "DIAG" not in capfd.readouterr().out
    stages = {f"kernel_A_{name}": kept[name] for name in ("Aqk", "Akk")} | dict(kernel_B_wy_inverse_A=kept["A"])
    stages |= {f"kernel_C_{name}": kept[name] for name in ("w_pseudo", "u", "kg", "qg")}
    stages |= dict(kernel_D_h_final=h_final, kernel_D_o=o)

    def lines():
        jax.effects_barrier()
        return sorted(capfd.readouterr().out.splitlines())

    monkeypatch.setattr(seed_configs, "_GDN2_FWD_DIAG", True)
    monkeypatch.setattr(configs, "_DIAGNOSED", True)
    for name, value in stages.items():
        seed_configs._stage_diag(f"here:{name}", value)
    wanted = lines()
    assert len(wanted) > 2 and all("[GDN2-FWD-DIAG] suspiciously large" in line for line in wanted)
    made = jax.jit(lambda: atomic_ops.gdn2_pallas_forward(*arguments, config=config, debug_tag="here"))()
    assert lines() == wanted
    np.testing.assert_array_equal(made[0], o)
    broken = jnp.asarray([1.0, jnp.nan, -jnp.inf, -2.5])
    seed_configs._stage_diag("x:stage", broken)
    wanted = lines()
    configs.diagnose("x:stage", broken)
    assert lines() == wanted and "n_nonfinite=2" in wanted[0]


def test_diagnostics_are_asked_for_by_the_environment():
    command = [sys.executable, "-c", "from gdn2.atomic_ops import configs; print(configs.diagnosed())"]
    done = subprocess.run(command, env=os.environ | dict(GDN2_FWD_DIAG="1"), capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "True", done.stderr
    assert not configs.diagnosed()


def test_training_steps():
    """A layer that makes all six tensors from its input by one matrix, as the package's example does: it learns to copy."""
    d, heads = 16, 2
    r = np.random.default_rng(0)
    x = jnp.asarray(r.normal(size=(2, 128, heads * d)), jnp.float32)
    weights = jnp.asarray(r.normal(size=(heads * d, 6 * heads * d)) * 0.2, jnp.float32)
    config = atomic_ops.get_recommended_config(2, 128, heads, d)

    def loss(weights):
        q, k, v, w, b, g = (t.reshape(2, 128, heads, d) for t in jnp.split(x @ weights, 6, axis=-1))
        k, b, g = k / jnp.linalg.norm(k, axis=-1, keepdims=True), jax.nn.sigmoid(b), -jax.nn.softplus(g)
        o, _ = atomic_ops.gdn2_forward_trainable(q, k, v, w, b, g, scale=d**-0.5, config=config)
        return jnp.mean((o.reshape(x.shape) - x) ** 2)

    @jax.jit
    def step(weights):
        value, gradient = jax.value_and_grad(loss)(weights)
        return value, weights - 10.0 * gradient

    losses = []
    for _ in range(8):
        value, weights = step(weights)
        losses.append(float(value))
    assert np.all(np.diff(losses) < 0) and losses[-1] < 0.8 * losses[0], losses


def test_vmap_of_the_pipeline():
    """Rows of their own, the state shared."""
    x = token_loop.sample("gdn2", 1, 32, 1, 128, 128, seed=1)
    tokens = [jnp.stack([jnp.asarray(x[name]), 0.5 * jnp.asarray(x[name])]) for name in ("q", "k", "v", "w", "b", "g")]
    config = atomic_ops.KernelConfig(bt=32, bc=16, mb=8, wy_eps=1e-3)

    def loss(*t):
        o, h_final = atomic_ops.gdn2_pallas_forward_trainable(*t, 0.1, h0=jnp.asarray(x["h0"]), config=config)
        return jnp.sum(o**2) + jnp.sum(h_final)

    made = jax.vmap(jax.grad(loss, argnums=range(6)))(*tokens)
    for i in range(2):
        for value, wanted in zip(made, jax.grad(loss, argnums=range(6))(*(t[i] for t in tokens))):
            np.testing.assert_array_equal(value[i], wanted)
