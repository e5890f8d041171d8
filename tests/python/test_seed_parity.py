"""The seed's pipeline against the seed, stage by stage of atomic-ops 0.1.0 in interpret mode, and against the exact rule."""

import ctypes

import numpy as np
import pytest
import seed_library
import token_loop
from seed_library import RESIDUALS, Config, Seed, SeedError

seed_package = pytest.importorskip("seed_package", reason="atomic-ops 0.1.0 and jax are not installed")
from seed_package import SCALE  # noqa: E402

OUTPUT_BOUND = 2e-6
GRADIENT_BOUND = 1e-5
B, L, H, D = 1, 128, 2, 128
CASES = [(wy_eps, with_h0) for wy_eps in (1e-3, 0.05) for with_h0 in (True, False)]


def assert_near(value, reference, bound, name):
    """Relative L2 error at most bound, for a reference that is not small."""
    reference = np.asarray(reference)
    assert np.all(np.isfinite(reference)), name
    assert np.sqrt(np.mean(np.square(reference, dtype=np.float64))) > 1e-5, f"{name}: the reference is nearly zero"
    error = token_loop.relative_error(value, reference)
    print(f"{name}: {error:.2e}")
    assert error <= bound, f"{name}: relative error {error:.3g} is above {bound}"


class Results:
    """What the seed gives for a case, computed when first asked for and kept."""

    def __init__(self):
        x = token_loop.sample("gdn2", B, L, H, D, D, seed=5)
        self.d_o, self.dh_final = x.pop("do"), x.pop("dh_final")
        self.sample = x
        self.kept = {}

    def inputs(self, with_h0):
        return {**self.sample, "h0": self.sample["h0"] if with_h0 else None}

    def keep(self, key, function):
        if key not in self.kept:
            self.kept[key] = function()
        return self.kept[key]

    def forward(self, wy_eps, with_h0):
        return self.keep(("forward", wy_eps, with_h0), lambda: seed_package.forward(self.inputs(with_h0), wy_eps))

    def gradients(self, wy_eps, with_h0):
        arguments = self.inputs(with_h0), wy_eps, self.forward(wy_eps, with_h0)[2], self.d_o, self.dh_final
        return self.keep(("gradients", wy_eps, with_h0), lambda: seed_package.gradients(*arguments))

    def kernels(self, wy_eps):
        arguments = self.inputs(True), wy_eps, self.forward(wy_eps, True)[2], self.d_o, self.dh_final
        return self.keep(("kernels", wy_eps), lambda: seed_package.kernels(*arguments))


@pytest.fixture(scope="session")
def results():
    return Results()


@pytest.fixture
def seed(library):
    """seed(wy_eps): the library's pipeline at the sizes of the cases."""
    return lambda wy_eps, **options: Seed(library, (B, L, H, D), D, Config(64, 32, 16, 1e4, wy_eps), SCALE, **options)


@pytest.mark.parametrize("wy_eps, with_h0", CASES)
def test_forward_and_every_residual(seed, results, wy_eps, with_h0):
    o, h_final, residuals = results.forward(wy_eps, with_h0)
    mine = seed(wy_eps).forward(results.inputs(with_h0))
    assert_near(mine[0], o, OUTPUT_BOUND, "o")
    assert_near(mine[1], h_final, OUTPUT_BOUND, "h_final")
    assert set(residuals) == set(RESIDUALS)
    for name in RESIDUALS:
        assert_near(mine[2][name], residuals[name], OUTPUT_BOUND, name)


@pytest.mark.parametrize("wy_eps, with_h0", CASES)
def test_every_gradient(seed, results, wy_eps, with_h0):
    wanted = results.gradients(wy_eps, with_h0)
    pipeline, x = seed(wy_eps), results.inputs(with_h0)
    residuals = pipeline.forward(x)[2]
    mine = pipeline.backward(x, residuals, results.d_o, results.dh_final)
    for name, gradient in wanted.items():
        assert_near(mine[name], gradient, GRADIENT_BOUND, name)
    anew = pipeline.backward(x, None, results.d_o, results.dh_final)
    for name in wanted:
        np.testing.assert_array_equal(anew[name], mine[name], err_msg=f"{name} with residuals made anew")


def test_public_trainable_function(seed, results):
    """The same through jax.vjp of the function that users call."""
    x = results.inputs(True)
    outputs, wanted = seed_package.trained(x, 1e-3, results.d_o, results.dh_final)
    pipeline = seed(1e-3)
    for value, reference, name in zip(pipeline.outputs("forward", x, None), outputs, ("o", "h_final")):
        assert_near(value, reference, OUTPUT_BOUND, name)
    mine = pipeline.backward(x, None, results.d_o, results.dh_final)
    for name, gradient in wanted.items():
        assert_near(mine[name], gradient, GRADIENT_BOUND, name)


@pytest.mark.parametrize("wy_eps", [1e-3, 0.05])
def test_forward_kernels_on_the_seeds_own_inputs(seed, results, wy_eps):
    o, h_final, r = results.forward(wy_eps, True)
    pipeline, x = seed(wy_eps), results.inputs(True)
    made = dict(zip(("Aqk", "Akk"), pipeline.scores(x["q"], x["k"], x["b"], x["g"])))
    made["A"] = pipeline.solve(r["Akk"])
    tokens = [x[name] for name in ("q", "k", "v", "w", "b", "g")]
    made |= zip(("w_pseudo", "u", "kg", "qg", "gc_last"), pipeline.rebuild(*tokens, r["A"]))
    carried = [r[name] for name in ("Aqk", "w_pseudo", "u", "kg", "qg", "gc_last")]
    o_chunks, last, made["h_pre_all"], made["v_new_all"] = pipeline.combine_with_state(*carried, x["h0"])
    for name in RESIDUALS:
        assert_near(made[name], r[name], OUTPUT_BOUND, name)
    assert_near(pipeline.from_chunks(o_chunks), o, OUTPUT_BOUND, "o")
    assert_near(last, h_final, OUTPUT_BOUND, "h_final")
    for with_state, without in zip((o_chunks, last), pipeline.combine(*carried, x["h0"])):
        np.testing.assert_array_equal(with_state, without)


@pytest.mark.parametrize("wy_eps", [1e-3, 0.05])
def test_backward_kernels_on_the_seeds_own_inputs(seed, results, wy_eps):
    r, wanted, x = results.forward(wy_eps, True)[2], results.kernels(wy_eps), results.inputs(True)
    pipeline = seed(wy_eps)

    def compare(names, mine, reference):
        for name, value, expected in zip(names, mine, reference, strict=True):
            assert_near(value, expected, GRADIENT_BOUND, name)

    compare(("gc",), (pipeline.chunk_sums(x["g"]),), (wanted["gc"],))
    np.testing.assert_array_equal(pipeline.to_chunks(results.d_o), wanted["d_o"])
    np.testing.assert_array_equal(pipeline.from_chunks(wanted["d_o"]), results.d_o)
    compare(("dAqk", "dv_partial"), pipeline.dav_backward(r["Aqk"], r["v_new_all"], wanted["d_o"]), wanted["b2"])
    carried = [r[name] for name in ("w_pseudo", "qg", "kg", "gc_last")]
    b1 = pipeline.dhu_backward(wanted["d_o"], wanted["b2"][1], *carried, results.dh_final)
    compare(("dh_all", "dh0", "dv_all"), b1, wanted["b1"])
    kept = {name: r[name] for name in ("A", "h_pre_all", "v_new_all")}
    b3 = pipeline.wy_backward(**wanted["b3_inputs"], **kept, gc=wanted["gc"], d_o=wanted["d_o"], dv=wanted["b1"][2])
    compare(b3, b3.values(), [wanted["b3"][name] for name in b3])
    tokens = [x[name] for name in ("q", "k", "b", "g")]
    b4 = pipeline.intra_backward(wanted["b2"][0], wanted["b3"]["dAkk"], *tokens)
    compare(("dq4", "dk4", "db4", "dgc4"), b4, wanted["b4"])
    compare(("dg",), (pipeline.reverse_cumsum(wanted["dgc"]),), (wanted["b5"],))


def clipped_inputs(results):
    """Pair exponents far beyond the clip, values beyond a clip of 0.5, and numbers that are not finite."""
    x = {name: np.array(value) for name, value in results.inputs(True).items()}
    x["g"] *= 40.0
    x["v"][0, 5, 0, 3] = np.nan
    x["q"][0, 9, 1, 7] = np.inf
    x["g"][0, 70, 0, 11] = -np.inf
    x["k"][0, 100, 1, 2] = np.nan
    return x


def test_clips_and_values_that_are_not_finite(library, results):
    """Where the seed clips and where its NaN go, the pipeline does the same."""
    x, clip = clipped_inputs(results), 0.5
    o, h_final, residuals = seed_package.forward(x, 1e-3, clip)
    pipeline = Seed(library, (B, L, H, D), D, Config(64, 32, 16, clip, 1e-3), SCALE)
    mine = pipeline.forward(x)
    for name, value, wanted in [("o", mine[0], o), ("h_final", mine[1], h_final)] + [
        (name, mine[2][name], residuals[name]) for name in RESIDUALS
    ]:
        assert np.all(np.isfinite(wanted)), name
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=2e-6, err_msg=name)
    for name in ("A", "u", "qg", "h_pre_all"):
        assert np.count_nonzero(np.abs(residuals[name]) == clip) > 100, f"{name}: the clip is not at work"
    wanted = seed_package.gradients(x, 1e-3, residuals, results.d_o, results.dh_final, clip)
    made = pipeline.backward(x, residuals, results.d_o, results.dh_final)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(made[name], gradient, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("with_h0", [True, False])
def test_references(seed, results, with_h0):
    x, pipeline = results.inputs(with_h0), seed(1e-3)
    for value, wanted, name in zip(pipeline.outputs("token_serial", x), seed_package.token_serial(x), ("o", "h_final")):
        assert_near(value, wanted, OUTPUT_BOUND, f"token serial {name}")
    for chunk_size, wy_eps in ((32, 0.0), (64, 0.05)):
        arguments = ctypes.c_int64(chunk_size), ctypes.c_double(wy_eps)
        mine = pipeline.outputs("chunked_wy", x, *arguments)
        for value, wanted, name in zip(mine, seed_package.chunked_wy(x, chunk_size, wy_eps), ("o", "h_final")):
            assert_near(value, wanted, OUTPUT_BOUND, f"chunked {name}")
    for value, wanted, name in zip(pipeline.outputs("forward_fallback", x), seed_package.fallback(x, 1e-3), ("o", "h_final")):
        assert_near(value, wanted, OUTPUT_BOUND, f"fallback {name}")


DAMPED = [(1e-3, "alike", 1e-4, 4e-3), (0.05, "independent", 1e-4, 4e-3), (0.05, "alike", 4e-3, 4e-2)]


@pytest.mark.parametrize("wy_eps, keys, least, most", DAMPED)
def test_damping_tells_the_two_semantics_apart(seed, results, wy_eps, keys, least, most):
    """Against the exact rule in float64: neither semantics can pass for the other. The effect grows with wy_eps and with what is
    erased: keys alike have a cosine of 0.8 with their neighbours; independent ones none, and here half the erase gate."""
    x = results.inputs(True)
    if keys == "independent":
        k = np.random.default_rng(1).normal(size=x["k"].shape)
        x |= {"k": (k / np.linalg.norm(k, axis=-1, keepdims=True)).astype(np.float32), "b": x["b"] / 2}
    exact = token_loop.forward(x, scale=SCALE)[0]
    for value, name in zip(seed(wy_eps).outputs("forward", x, None), ("o", "h_final")):
        distance = token_loop.relative_error(value, exact[name])
        print(f"{name}: {distance:.2e}")
        assert least <= distance <= most
    # Without damping the same pipeline is the exact rule.
    for value, name in zip(seed(0.0).outputs("forward", x, None), ("o", "h_final")):
        assert_near(value, exact[name], OUTPUT_BOUND, name)


def test_presets(library):
    import atomic_ops

    loaded = seed_library.load(library)
    pairs = {
        "default": atomic_ops.DEFAULT_CONFIG,
        "plain": atomic_ops.KernelConfig(),
        "small": atomic_ops.KAGGLE_SMALL,
        "medium": atomic_ops.KAGGLE_MEDIUM,
        "large": atomic_ops.KAGGLE_LARGE,
    }
    for name, theirs in pairs.items():
        assert fields(seed_library.preset(loaded, name)) == fields(theirs), name


def fields(config):
    return tuple(getattr(config, name) for name in ("bt", "bc", "mb", "clip", "wy_eps"))


def test_memory_estimate_and_recommended_config(library):
    import atomic_ops

    loaded = seed_library.load(library)
    chosen = set()
    long = [(batch, 4096, 6, 128) for batch in (1, 16, 24, 64)]
    for sizes in [*long, (3, 1000, 5, 64), (2, 100, 4, 128)]:
        for bt, size in ((256, 4), (64, 2)):
            mine = seed_library.estimate_memory(loaded, *sizes, bt, size)
            assert mine == atomic_ops.estimate_memory(*sizes, bt, size)
        theirs = atomic_ops.get_recommended_config(*sizes)
        assert fields(seed_library.recommended_config(loaded, *sizes)) == fields(theirs)
        chosen.add(fields(theirs))
    assert len(chosen) == 3


CONFIGS = [
    (64, 32, 16, 1e4, 0.0),
    (256, 64, 16, 1e4, 0.0),
    (64, 64, 16, 1e4, 0.0),
    (100, 64, 16, 1e4, 0.0),
    (64, 32, 12, 1e4, 0.0),
    (64, 32, 16, 1e4, 1.0),
    (64, 32, 16, 1e4, -0.1),
    (64, 32, 16, 1e4, 0.999),
    (2, 1, 1, 1e4, 0.0),
]


@pytest.mark.parametrize("values", CONFIGS)
def test_strict_check_refuses_what_the_seed_refuses(library, values):
    import atomic_ops

    loaded = seed_library.load(library)
    try:
        atomic_ops.KernelConfig(*values)
        accepted = True
    except ValueError:
        accepted = False
    config = Config(*values)
    assert (loaded.gdn2_seed_config_check_strict(ctypes.byref(config)) == 0) == accepted
    bt, bc, mb, _, wy_eps = values
    lifted = bt % bc == 0 and bc % mb == 0 and 0 <= wy_eps < 1
    assert (loaded.gdn2_seed_config_check(ctypes.byref(config)) == 0) == lifted


SHAPES = {
    "fits": {},
    "q": {"q": (128, 2, 128)},
    "d_head": dict.fromkeys(("q", "k", "v", "w", "b", "g"), (1, 128, 2, 64)) | {"h0": (1, 2, 64, 64)},
    "seq_len": dict.fromkeys(("q", "k", "v", "w", "b", "g"), (1, 100, 2, 128)),
    "k": {"k": (1, 128, 3, 128)},
    "v": {"v": (1, 128, 2, 64)},
    "w": {"w": (1, 64, 2, 128)},
    "b": {"b": (2, 128, 2, 128)},
    "g": {"g": (1, 128, 2)},
    "h0": {"h0": (1, 2, 128, 64)},
}


@pytest.mark.parametrize("wrong", SHAPES)
def test_strict_validation_refuses_what_the_seed_refuses(library, wrong):
    from atomic_ops.configs import validate_inputs

    loaded = seed_library.load(library)
    shapes = {**dict.fromkeys(("q", "k", "v", "w", "b", "g"), (1, 128, 2, 128)), "h0": (1, 2, 128, 128), **SHAPES[wrong]}
    config = Config(64, 32, 16, 1e4, 0.0)
    described = seed_library.shapes(**shapes)
    arrays = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    tokens = [arrays[name] for name in ("q", "k", "v", "w", "b", "g")]

    def mine():
        seed_library.check(loaded, loaded.gdn2_seed_validate_strict(ctypes.byref(described), ctypes.byref(config)))

    def theirs():
        validate_inputs(*tokens, SCALE, arrays["h0"], seed_package.config(0.0))

    if wrong == "fits":
        mine()
        theirs()
        return
    with pytest.raises(ValueError):
        theirs()
    with pytest.raises(SeedError) as error:
        mine()
    assert wrong in str(error.value), error.value


def test_a_planted_error_is_noticed(results):
    """assert_near refuses a result that differs in one number by one part in a hundred of the largest."""
    o = results.forward(1e-3, True)[0]
    wrong = o.copy()
    wrong.flat[np.argmax(np.abs(wrong))] *= 1.01
    with pytest.raises(AssertionError):
        assert_near(wrong, o, OUTPUT_BOUND, "o")
