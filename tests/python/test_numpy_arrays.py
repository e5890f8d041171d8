"""How gdn2 takes NumPy arrays: strides, outputs, read-only memory, errors, threads."""

import pickle
import threading
import time

import numpy as np
import pytest
import token_loop

import gdn2

INPUTS = ("q", "k", "v", "g", "b", "w", "h0")


@pytest.fixture
def x():
    sample = token_loop.sample("gdn2")
    return {name: sample[name] for name in INPUTS}


def spaced(value, rng):
    """The same values in a view with gaps, its axes in another order in memory; the gaps hold NaN."""
    order = rng.permutation(3).tolist() + [3]
    room = np.full([2 * value.shape[i] + 1 for i in order[:3]] + [value.shape[3] + 3], np.nan, value.dtype)
    view = room[::2, ::2, ::2][tuple(slice(0, value.shape[i]) for i in order[:3])][..., : value.shape[3]]
    view = view.transpose(np.argsort(order))
    view[...] = value
    return view


def test_strides_are_taken_as_they_are(x):
    rng = np.random.default_rng(0)
    expected = gdn2.forward(**x)
    for _ in range(6):
        views = {name: spaced(value, rng) for name, value in x.items()}
        assert not any(view.flags.c_contiguous for view in views.values())
        for one, other in zip(expected, gdn2.forward(**views)):
            assert np.array_equal(one, other)


def test_reversed_and_broadcast(x):
    backwards = {name: value if name == "h0" else value[:, ::-1].copy()[:, ::-1] for name, value in x.items()}
    for one, other in zip(gdn2.forward(**x), gdn2.forward(**backwards)):
        assert np.array_equal(one, other)
    one = dict(x, h0=np.broadcast_to(x["h0"][:1], x["h0"].shape))
    full = {name: np.array(value, order="C") for name, value in one.items()}
    for first, second in zip(gdn2.forward(**one), gdn2.forward(**full)):
        assert np.array_equal(first, second)


def test_a_gate_broadcast_from_one_number(x):
    """Four strides of 0 mean contiguous to the library; they must not be passed on."""
    g = np.broadcast_to(np.float32(-0.25), x["g"].shape)
    for one, other in zip(gdn2.forward(**dict(x, g=g)), gdn2.forward(**dict(x, g=np.array(g, order="C")))):
        assert np.array_equal(one, other)


def test_channels_apart_and_unaligned_arrays_are_copied(x):
    apart = dict(x, q=np.repeat(x["q"], 2, axis=-1)[..., ::2])
    raw = np.zeros(x["k"].nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(x["k"].shape)
    unaligned[...] = x["k"]
    assert not unaligned.flags.aligned
    for y in (apart, dict(x, k=unaligned)):
        for one, other in zip(gdn2.forward(**x), gdn2.forward(**y)):
            assert np.array_equal(one, other)


def test_states_may_be_transposed(x):
    other = dict(x, h0=np.ascontiguousarray(x["h0"].swapaxes(2, 3)).swapaxes(2, 3))
    h_out = np.empty(x["h0"].swapaxes(2, 3).shape, np.float32).swapaxes(2, 3)
    o, h_final = gdn2.forward(**other, h_out=h_out)
    assert h_final is h_out
    for one, two in zip(gdn2.forward(**x), (o, h_final)):
        assert np.array_equal(one, two)


def test_outputs_of_the_caller(x):
    o, h_final = gdn2.forward(**x)
    room = np.full((o.shape[0], o.shape[2], 2 * o.shape[1], o.shape[3]), np.nan, np.float32)
    out, state = room[:, :, ::2].swapaxes(1, 2), x["h0"].copy()
    results = gdn2.forward(**dict(x, h0=state), out=out, h_out=state)
    assert results[0] is out and results[1] is state
    assert np.array_equal(out, o) and np.array_equal(state, h_final)
    assert np.isnan(room[:, :, 1::2]).all(), "only addressed elements are written"
    assert gdn2.forward(**x, final_state=False)[1] is None


def test_inputs_are_never_written(x):
    before = {name: value.copy() for name, value in x.items()}
    for value in x.values():
        value.flags.writeable = False
    o, h_final = gdn2.forward(**x)
    gdn2.backward(**x, d_o=o, dh_final=h_final)
    assert all(np.array_equal(x[name], before[name]) for name in x)


def test_element_types_are_compared_by_value(x):
    """An array that was pickled has an element type of its own."""
    y = {name: value.astype(np.float64) for name, value in x.items()}
    again = pickle.loads(pickle.dumps(y))
    assert again["q"].dtype is not y["q"].dtype
    for one, other in zip(gdn2.forward(**y), gdn2.forward(**again)):
        assert other.dtype == np.float64 and np.array_equal(one, other)


def test_no_tokens_no_sequences(x):
    o, h_final = gdn2.forward(**{name: value if name == "h0" else value[:, :0] for name, value in x.items()})
    assert o.shape[1] == 0 and np.array_equal(h_final, x["h0"])
    o, h_final = gdn2.forward(**{name: value[:0] for name, value in x.items()})
    assert o.shape[0] == h_final.shape[0] == 0


def changed(x, **arguments):
    return x | arguments


WRONG = {
    "q is no array": (lambda x: changed(x, q=x["q"].tolist()), TypeError, "q is of type list; it must be an array"),
    "k has another shape": (
        lambda x: changed(x, k=x["k"][..., 1:]),
        ValueError,
        r"k has shape \(2, 37, 3, 4\); it must be \(2, 37, 3, 5\)",
    ),
    "k is no array": (lambda x: changed(x, k=x["k"].tolist()), TypeError, "k is of type list; it must be an array"),
    "no k": (lambda x: changed(x, k=None), TypeError, "k is of type NoneType; it must be an array"),
    "v has three axes": (
        lambda x: changed(x, v=x["v"][..., 0]),
        ValueError,
        r"v has shape \(2, 37, 3\); it must be \[B, T, HV, V\]",
    ),
    "g of other heads": (
        lambda x: changed(x, g=x["g"][:, :, :2]),
        ValueError,
        r"g has shape .*; it must be \(2, 37, 3, 5\) or \(2, 37, 3\)",
    ),
    "w over keys": (lambda x: changed(x, w=x["b"]), ValueError, r"w has shape \(2, 37, 3, 5\); it must be \(2, 37, 3, 7\)"),
    "beta and b": (lambda x: changed(x, beta=x["b"][..., 0]), ValueError, "beta is given together with b or w"),
    "h0 of another batch": (
        lambda x: changed(x, h0=x["h0"][:1]),
        ValueError,
        r"h0 has shape \(1, 3, 5, 7\); it must be \(2, 3, 5, 7\)",
    ),
    "integers": (lambda x: changed(x, v=x["v"].astype(np.int32)), TypeError, "v has element type int32; it must be float32"),
    "other byte order": (lambda x: changed(x, v=x["v"].astype(">f4")), TypeError, "v has element type >f4"),
    "state in float16": (lambda x: changed(x, h0=x["h0"].astype(np.float16)), TypeError, "h0: dtype is 2; it must be"),
    "half a thread": (lambda x: changed(x, threads=1.5), TypeError, "threads is 1.5; it must be a whole number"),
    "threads in words": (lambda x: changed(x, threads="2"), TypeError, "threads is '2'; it must be a whole number"),
    "too many threads": (lambda x: changed(x, threads=2**31), ValueError, "threads is 2147483648; it must be below"),
    "half a moment": (lambda x: changed(x, snapshot_every=16.5), TypeError, "snapshot_every is 16.5; it must be a whole number"),
    "negative threads": (lambda x: changed(x, threads=-1), ValueError, "exec.threads is -1"),
    "unknown choice": (
        lambda x: changed(x, decay="exp"),
        ValueError,
        "decay is 'exp'; it must be one of 'log', 'softplus', 'bounded'",
    ),
    "choice of another gate": (
        lambda x: changed(x, write="two_sigmoid"),
        ValueError,
        "write is 'two_sigmoid'; it must be one of 'given', 'sigmoid'",
    ),
    "A_log without a raw decay": (
        lambda x: changed(x, A_log=np.zeros(3, np.float32)),
        ValueError,
        "A_log is given; it must be None where decay is 'log'",
    ),
    "unknown set": (lambda x: changed(x, isa="sse"), ValueError, "isa is 'sse'"),
    "no A_log": (lambda x: changed(x, decay="softplus"), ValueError, "A_log: data is NULL"),
    "offsets for a batch": (
        lambda x: changed(x, cu_seqlens=np.array([0, 1, 37])),
        ValueError,
        "B is 2; with cu_seqlens it must be 1",
    ),
    "offsets in floats": (
        lambda x: changed(x, cu_seqlens=np.array([0.0, 37.0])),
        TypeError,
        "cu_seqlens has element type float64",
    ),
    "read-only output": (
        lambda x: changed(x, out=np.broadcast_to(np.float32(0), x["v"].shape)),
        ValueError,
        "out is read-only; it must be writeable",
    ),
    "overlapping output": (lambda x: changed(x, out=x["v"]), ValueError, "out overlaps v; an output must not overlap an input"),
    "channels of the output apart": (
        lambda x: changed(x, out=np.zeros((2, 37, 3, 14), np.float32)[..., ::2]),
        ValueError,
        "o: the channel stride is 2; it must be 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_argument(x, name):
    change, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        gdn2.forward(**change(x))


def test_nothing_is_written_on_an_error(x):
    out = np.full(x["v"].shape, 7, np.float32)
    with pytest.raises(ValueError, match="lower_bound is 1"):
        gdn2.forward(**x, out=out, decay="bounded", A_log=np.zeros(3, np.float32), lower_bound=1.0)
    assert (out == 7).all()


def test_outputs_in_one_array_are_refused(x):
    room = np.full(x["v"].size + 1, 7, np.float32)
    out = room[1:].reshape(x["v"].shape)
    h_out = room[: 2 * 3 * 5 * 7].reshape(2, 3, 5, 7)
    with pytest.raises(ValueError, match="h_final: data is .* overlaps o at .* must not overlap"):
        gdn2.forward(**x, out=out, h_out=h_out)
    assert (room == 7).all()


def test_bits_do_not_depend_on_threads(x):
    for one, other in zip(gdn2.forward(**x, threads=1), gdn2.forward(**x, threads=3)):
        assert np.array_equal(one, other)


def test_the_gil_is_released():
    """Python goes on counting while one call of the library runs."""
    r = np.random.default_rng(0)
    q, k, v = (r.normal(size=(1, 20000, 2, 64)).astype(np.float32) for _ in range(3))
    counts, done = [0], threading.Event()

    def work():
        gdn2.forward(q, 0.1 * k, v, threads=1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        counts[0] += 1
        time.sleep(0.0002)
    thread.join()
    assert counts[0] > 5
