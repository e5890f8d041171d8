"""gdn2.jax under JAX's transformations. What a transformation computes is compared with the same calls made one by one."""

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_support as support  # noqa: E402
import numpy as np  # noqa: E402
import token_loop  # noqa: E402
from jax.sharding import AxisType, PartitionSpec  # noqa: E402

import gdn2  # noqa: E402

NAMES = ("q", "k", "v", "g", "b", "w", "h0")


@pytest.fixture(scope="module")
def case():
    return support.sample()


@pytest.fixture(scope="module")
def plain(case):
    x, cotangents = case
    return support.chunk(x), support.gradients(x, cotangents)


def assert_same(made, wanted):
    """Bit by bit, whatever the structure."""
    jax.tree.map(np.testing.assert_array_equal, made, wanted)


def test_jit_and_value_and_grad(case, plain):
    x, cotangents = case
    assert_same(jax.jit(support.chunk)(x), plain[0])
    value, made = jax.jit(jax.value_and_grad(lambda x: support.inner(support.chunk(x), cotangents)))(x)
    assert_same(made, plain[1])
    np.testing.assert_allclose(value, support.inner(plain[0], cotangents), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_by_one_input(case, plain, name):
    """Only this gradient is computed: the custom call has one result."""
    x, cotangents = case

    def loss(value):
        return support.inner(support.chunk(x | {name: value}), cotangents)

    lines = str(jax.make_jaxpr(jax.grad(loss))(x[name])).splitlines()
    assert [line for line in lines if f"('outputs', 'd{name}')" in line]
    assert_same(jax.grad(loss)(x[name]), plain[1][name])


def test_gradient_by_the_state_alone(case):
    """No gradient of o: it counts as zero, for the library too."""
    x, cotangents = case
    made = jax.grad(lambda x: jnp.sum(support.chunk(x)[1] * cotangents[1]))(x)
    wanted = support.gradients(x, (np.zeros_like(cotangents[0]), cotangents[1]))
    token_loop.assert_close({n: made[n] for n in NAMES if n != "q"}, {n: wanted[n] for n in NAMES if n != "q"})
    assert not np.any(made["q"])


@pytest.mark.parametrize("name", NAMES)
def test_vmap_over_one_input(case, name):
    """The others stay the same for all rows. Outputs, gradients inside of vmap, and gradients of the whole."""
    x, cotangents = case
    axis = 1 if name == "k" else 0
    rows = [x[name] * factor for factor in (1.0, 0.5, 0.25)]
    many = x | {name: jnp.stack(rows, axis)}
    axes = {other: axis if other == name else None for other in NAMES}
    outputs = jax.vmap(support.chunk, (axes,))(many)
    inside = jax.vmap(lambda x: support.gradients(x, cotangents), (axes,))(many)
    loss = jax.vmap(lambda x: support.inner(support.chunk(x), cotangents), (axes,))
    whole = jax.grad(lambda m: jnp.sum(loss(m)))(many)
    total = {other: 0 for other in NAMES}
    for i, row in enumerate(rows):
        one = x | {name: row}
        assert_same([value[i] for value in outputs], list(support.chunk(one)))
        gradient = support.gradients(one, cotangents)
        assert_same({n: inside[n][i] for n in NAMES}, gradient)
        assert_same(jnp.take(whole[name], i, axis), gradient[name])
        total = {other: total[other] + gradient[other] for other in NAMES}
    others = [other for other in NAMES if other != name]
    token_loop.assert_close({n: whole[n] for n in others}, {n: total[n] for n in others})


def test_vmap_within_vmap(case):
    """Rows that share inputs along one axis, along the other, along both; a batch of two and a batch of one."""
    x, _ = case
    for batch in (2, 1):
        one = {name: value[:batch] for name, value in x.items()}
        grid = one | dict(q=jnp.stack([one["q"], -one["q"]]), v=jnp.stack([one["v"], one["v"] * 2, one["v"] * 3]))
        inner = jax.vmap(support.chunk, ({name: 0 if name == "v" else None for name in NAMES},))
        o, h_final = jax.vmap(inner, ({name: 0 if name == "q" else None for name in NAMES},))(grid)
        for i in range(2):
            for j in range(3):
                wanted = support.chunk(one | dict(q=grid["q"][i], v=grid["v"][j]))
                assert_same([o[i, j], h_final[i, j]], list(wanted))


def test_vmap_over_offsets():
    """Sequences packed differently in every row."""
    x, cotangents = support.sample(B=1)
    x["h0"] = jnp.concatenate([x["h0"]] * 3)
    offsets = jnp.asarray([[0, 4, 4, 19], [0, 7, 12, 15]])
    outputs = jax.vmap(lambda c: support.chunk(x, cu_seqlens=c))(offsets)
    for i in range(2):
        assert_same([value[i] for value in outputs], list(support.chunk(x, cu_seqlens=offsets[i])))


def test_scan_over_pieces(case, plain):
    """A sequence in pieces, the state carried, forward and backward."""
    x, cotangents = case

    def pieces(x):
        tokens = {name: value for name, value in x.items() if name != "h0"}
        return {name: jnp.moveaxis(value.reshape(2, 3, 6, *value.shape[2:]), 1, 0) for name, value in tokens.items()}

    def scanned(x):
        def body(state, piece):
            o, state = support.chunk(piece | dict(h0=state))
            return state, o

        state, o = jax.lax.scan(body, x["h0"], pieces(x))
        return jnp.moveaxis(o, 0, 1).reshape(2, -1, *o.shape[3:]), state

    x = {name: value[:, :18] if name != "h0" else value for name, value in x.items()}
    cotangents = cotangents[0][:, :18], cotangents[1]
    token_loop.assert_close(dict(zip("oh", scanned(x))), dict(zip("oh", support.chunk(x))))
    made = jax.jit(jax.grad(lambda x: support.inner(scanned(x), cotangents)))(x)
    token_loop.assert_close(made, support.gradients(x, cotangents))


def test_checkpoint(case, plain):
    x, cotangents = case
    kept = jax.checkpoint(support.chunk, policy=jax.checkpoint_policies.nothing_saveable)
    assert_same(jax.jit(jax.grad(lambda x: support.inner(kept(x), cotangents)))(x), plain[1])


def test_donated_buffers(case):
    """A donated state is updated in place; one that is still needed is copied by XLA."""
    x, _ = case
    state, token = jnp.array(x["h0"]), [x[name][:, 0] for name in support.names("gdn2")]
    wanted = support.STEPS["gdn2"](*token, x["h0"])
    kept = jax.jit(lambda state, token: support.STEPS["gdn2"](*token, state))(state, token)
    assert_same([kept, state], [wanted, x["h0"]])
    where = state.unsafe_buffer_pointer()
    donating = jax.jit(lambda state, token: support.STEPS["gdn2"](*token, state), donate_argnums=0)
    o, made = donating(state, token)
    assert state.is_deleted() and made.unsafe_buffer_pointer() == where
    assert_same((o, made), wanted)
    # Donated to a sequence.
    state = jnp.array(x["h0"])
    whole = jax.jit(lambda state, x: support.chunk(x | dict(h0=state)), donate_argnums=0)
    assert_same(whole(state, x), support.chunk(x))
    assert state.is_deleted()


def test_scan_of_steps_on_a_donated_state():
    """A hundred steps: the same bits donated or not, those of the library, and a state that is not donated stays as it is."""
    x, _ = support.sample(T=100)
    names = support.names("gdn2")

    def decode(state, tokens):
        def step(state, token):
            o, state = support.STEPS["gdn2"](*token, state)
            return state, o

        state, o = jax.lax.scan(step, state, tokens)
        return o, state

    tokens, state = [jnp.moveaxis(x[name], 1, 0) for name in names], jnp.array(x["h0"])
    kept = jax.jit(decode)(state, tokens)
    assert_same(state, x["h0"])
    donated = jax.jit(decode, donate_argnums=0)(state, tokens)
    assert state.is_deleted()
    assert_same(donated, kept)
    state = np.array(x["h0"])
    for t in range(100):
        o, state = gdn2.step(*(np.asarray(x[name][:, t : t + 1]) for name in names), state=state)
        np.testing.assert_array_equal(kept[0][t], o[:, 0])
    np.testing.assert_array_equal(kept[1], state)
    assert np.abs(state).max() > 0.1


def test_states_that_fade_away():
    """Through the subnormal numbers, whatever floating-point mode XLA gives its threads: as in NumPy's, but for those numbers."""
    r = np.random.default_rng(5)
    q, k, v = (r.normal(size=(1, 2, n)).astype(np.float32) for n in (5, 5, 7))
    g, off, one = np.full_like(k, -1), np.zeros_like(k), np.ones_like(v)
    first = gdn2.step(*(y[:, None] for y in (q, k, v, g, off, one)))[1]
    nothing = [*(y[:, None] for y in (q, k, np.zeros_like(v), g, off)), np.zeros_like(v)[:, None]]

    @jax.jit
    def fade(state):
        def step(state, _):
            o, state = support.STEPS["gdn2"](*(jnp.asarray(y[:, 0]) for y in nothing), state)
            return state, (o, state)

        return jax.lax.scan(step, state, length=200)[1]

    outputs, states = (np.asarray(y, np.float64) for y in fade(jnp.asarray(first)))
    state, wanted = first.copy(), first.astype(np.float64)
    passed = 0
    for t in range(200):
        o, state = gdn2.step(*nothing, state=state)
        wanted = wanted * np.exp(-1.0)
        assert np.abs(states[t] - state).max() <= 1e-37 and np.abs(outputs[t] - o[:, 0]).max() <= 1e-37
        assert np.abs(states[t] - wanted).max() <= 1e-5 * np.abs(wanted).max() + 1e-37
        passed += 0 < np.abs(wanted).max() < 1.2e-38
    assert passed > 10 and np.abs(first).max() > 0.1


def test_vmap_over_steps(case):
    """Rows of tokens on one state, and of states under one token."""
    x, _ = case
    token = [x[name][:, 0] for name in support.names("gdn2")]
    states = jnp.stack([x["h0"], 2 * x["h0"]])
    step = support.STEPS["gdn2"]
    made = jax.vmap(lambda state: step(*token, state))(states)
    tokens = [jnp.stack([t, t / 2]) for t in token]
    other = jax.vmap(lambda *t: step(*t, x["h0"], reset=jnp.asarray([True, False])))(*tokens)
    for i in range(2):
        assert_same([value[i] for value in made], list(step(*token, states[i])))
        wanted = step(*(t[i] for t in tokens), x["h0"], reset=jnp.asarray([True, False]))
        assert_same([value[i] for value in other], list(wanted))


def test_integer_inputs_have_float0_gradients(case):
    x, cotangents = support.sample(B=1)
    x["h0"] = jnp.concatenate([x["h0"]] * 2)
    offsets = jnp.asarray([0, 5, 19])

    def loss(x, offsets):
        return support.chunk(x, cu_seqlens=offsets)[0].sum()

    made, of_offsets = jax.jit(jax.grad(loss, argnums=(0, 1), allow_int=True))(x, offsets)
    assert of_offsets.dtype == jax.dtypes.float0 and of_offsets.shape == (3,)
    assert np.any(made["k"])
    segments = jnp.arange(19)[None] // 5
    one = x | dict(h0=x["h0"][:1])
    of_segments = jax.grad(lambda s: support.chunk(one, segment_ids=s)[0].sum(), allow_int=True)(segments)
    assert of_segments.dtype == jax.dtypes.float0


needs_two = pytest.mark.skipif(len(jax.devices()) < 2, reason="XLA was started with one device before this file")


@needs_two
@pytest.mark.parametrize("axis, check", [("batch", True), ("batch", False), ("heads", True)])
def test_shard_map(axis, check):
    """Batch or heads on two devices."""
    x, cotangents = support.sample(H=2)
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    tokens, state = (PartitionSpec("x"),) * 2 if axis == "batch" else (PartitionSpec(None, None, "x"), PartitionSpec(None, "x"))
    specs = {name: state if name == "h0" else tokens for name in NAMES}
    sharded = jax.shard_map(support.chunk, mesh=mesh, in_specs=(specs,), out_specs=(tokens, state), check_vma=check)
    assert_same(jax.jit(sharded)(x), support.chunk(x))
    made = jax.jit(jax.grad(lambda x: support.inner(sharded(x), cotangents)))(x)
    assert_same(made, support.gradients(x, cotangents))


@needs_two
def test_shard_map_with_a_shared_input():
    """The keys are the same on both devices: their gradient is the sum."""
    x, cotangents = support.sample()
    x["k"] = x["k"][:1]
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    row = PartitionSpec("x")
    specs = {name: PartitionSpec() if name == "k" else row for name in NAMES}
    sharded = jax.shard_map(support.chunk, mesh=mesh, in_specs=(specs,), out_specs=(row, row))
    made = jax.jit(jax.grad(lambda x: support.inner(sharded(x), cotangents)))(x)
    both = support.gradients(x | dict(k=jnp.concatenate([x["k"]] * 2)), cotangents)
    both["k"] = both["k"].sum(0, keepdims=True)
    token_loop.assert_close(made, both)
