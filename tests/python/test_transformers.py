"""gdn2.transformers: small models of the real classes with random weights, with and without the patch."""

import contextlib
import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (tests/python/requirements-torch.txt)")

from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig  # noqa: E402
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM  # noqa: E402
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextForCausalLM  # noqa: E402

import gdn2.transformers as gt  # noqa: E402

torch.set_num_threads(1)
SIZES = {
    **dict(vocab_size=97, hidden_size=48, intermediate_size=64, num_hidden_layers=4, max_position_embeddings=256),
    **dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    **dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=10),
}
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32)
MODELS = {
    "Qwen3-Next": lambda: Qwen3NextForCausalLM(Qwen3NextConfig(**SIZES, **EXPERTS)),
    "Qwen3.5": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SIZES)),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    made = MODELS[request.param]().eval()
    # The other implementations do not take float64.
    made.set_experts_implementation("eager")
    for name, parameter in made.named_parameters():
        if parameter.dim() > 1:
            # Weights that make the linear layers matter.
            torch.nn.init.normal_(parameter, std=0.1)
        elif name.endswith(("norm.weight", "dt_bias")):
            torch.nn.init.normal_(parameter, 1, 0.1)
    return made


@pytest.fixture
def prompt():
    """Two rows, the second padded on the left."""
    torch.manual_seed(1)
    tokens, mask = torch.randint(3, 97, (2, 37)), torch.ones(2, 37, dtype=torch.long)
    mask[1, :9] = 0
    return tokens, mask


def logits(model, prompt, **options):
    tokens, mask = prompt
    return model(tokens, attention_mask=mask, **options).logits[mask.bool()]


def error(values, reference):
    return ((values - reference).norm() / reference.norm()).item()


SINGLE, WIDE = (torch.float32, torch.Tensor.float), (torch.float64, torch.Tensor.double)


@contextlib.contextmanager
def asked_for_float32(given):
    """A model in float64 computes its rule, gates and norms in float32 all the same, with the same rounding as the model in float32: no
    reference for either. With WIDE it gets float64 where it asks for float32."""
    before = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = given
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = before


def wide_logits(model, prompt):
    wide = copy.deepcopy(model).double()
    with asked_for_float32(WIDE):
        return logits(wide, prompt)


def test_logits(model, prompt):
    """As close to the model in float64 as the model itself is."""
    with torch.no_grad():
        reference = wide_logits(model, prompt)
        before = logits(model, prompt)
        assert gt.patch(model) == 3
        after = logits(model, prompt)
    assert reference.std() > 0.1 and not torch.equal(before, after)
    assert error(after, reference) < max(1e-6, 1.5 * error(before, reference))


def test_a_layer_that_is_off_is_seen(model, prompt):
    with torch.no_grad():
        before = logits(model, prompt)
        next(module for module in model.modules() if hasattr(module, "A_log")).A_log += 0.01
        assert error(logits(model, prompt), before) > 1e-5


def test_float64(model, prompt):
    """The model itself computes rule and norm in float32, whatever its type; the patch in float64."""
    with torch.no_grad():
        reference = wide_logits(model, prompt)
        model = model.double()
        before = logits(model, prompt)
        gt.patch(model)
        after = logits(model, prompt)
        # The layers that are not patched in float64 too, the patched ones as they are.
        for module in model.modules():
            if "forward" in module.__dict__:
                module.forward = asked_for_float32(SINGLE)(module.forward)
        with asked_for_float32(WIDE):
            wide = logits(model, prompt)
    assert after.dtype == torch.float64 and error(before, reference) > 1e-6
    assert error(after, reference) < 1.5 * error(before, reference)
    assert error(wide, reference) < 1e-12


def test_bfloat16(model, prompt):
    """Decay, gates and norms stay in float32: not further from the wide model than the model itself is."""
    with torch.no_grad():
        reference = logits(model, prompt)
        narrow = model.bfloat16()
        before = error(logits(narrow, prompt).float(), reference)
        gt.patch(narrow)
        after = error(logits(narrow, prompt).float(), reference)
    assert 1e-3 < after < 1.3 * before


def test_generated_tokens(model, prompt):
    tokens, mask = prompt
    options = {"attention_mask": mask, "max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    before = model.generate(tokens, **options)
    gt.patch(model)
    assert torch.equal(model.generate(tokens, **options), before)
    assert before.shape == (2, 49) and before[:, 37:].unique().numel() > 3
    options |= {"num_beams": 3}
    after = model.generate(tokens, **options)
    gt.unpatch(model)
    assert torch.equal(model.generate(tokens, **options), after)


def in_pieces(model, tokens, cuts, change=lambda model: None):
    """Logits of a prompt given in pieces with a cache; change is called after the first."""
    cache, begin, parts = None, 0, []
    for end in cuts:
        output = model(tokens[:, begin:end], cache=cache, use_cache=True)
        cache, begin = output.past_key_values, end
        parts.append(output.logits)
        change(model)
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("cuts", [(20, 21, 22, 37), (1, 2, 5, 30, 37), (36, 37)])
def test_cached_pieces_are_the_whole(model, prompt, cuts):
    """Prefill, decode, several tokens at once on a cache; also begun without the patch and gone on with it, and the other way."""
    tokens = prompt[0]
    with torch.no_grad():
        whole = model(tokens).logits
        # What float32 costs the model itself, as a whole and in pieces.
        wide = copy.deepcopy(model).double()
        with asked_for_float32(WIDE):
            rounding = error(whole, wide(tokens).logits)
        allowed = 3 * (rounding + error(in_pieces(model, tokens, cuts), whole))
        assert allowed < 1e-4
        assert error(in_pieces(model, tokens, cuts, gt.patch), whole) < allowed
        assert error(in_pieces(model, tokens, cuts), whole) < allowed
        assert error(in_pieces(model, tokens, cuts, gt.unpatch), whole) < allowed


def test_the_cache_is_the_models_own(model, prompt):
    """After a prefill and a step the states are those of the model without the patch."""
    found = []
    with torch.no_grad():
        for _ in range(2):
            output = model(prompt[0][:, :30], use_cache=True)
            model(prompt[0][:, 30:31], cache=output.past_key_values, use_cache=True)
            found.append(output.past_key_values)
            gt.patch(model)
    for layer in range(3):
        for get in ("get_conv_state", "get_recurrent_state"):
            before, after = (getattr(cache, get)(layer) for cache in found)
            assert before.shape == after.shape and before.dtype == after.dtype
            assert before.abs().max() > 1e-2 and error(after, before) < 1e-4


def test_gradients(model, prompt):
    tokens, mask = prompt
    found = []
    for double in (True, False, False):
        copied = copy.deepcopy(model).train()
        copied = copied.double() if double else copied
        if len(found) == 2:
            gt.patch(copied)
        with asked_for_float32(WIDE) if double else contextlib.nullcontext():
            loss = copied(tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss
        loss.backward()
        found.append({name: p.grad for name, p in copied.named_parameters() if p.grad is not None})
    reference, before, after = found
    names = [name for name in reference if "linear_attn" in name]
    assert set(before) == set(after) and len(names) > 20
    assert all(reference[name].norm() > 1e-8 for name in names)
    # Rounding is luck where few numbers are added up: all gradients together, and none far off.
    errors = torch.tensor([[error(found[name], reference[name]) for name in names] for found in (before, after)])
    assert errors[1].square().mean() < 4 * errors[0].square().mean()
    assert (errors[1] < 5 * errors[0] + 1e-5).all()


def test_packed_sequences(model):
    """cu_seq_lens_q keeps them apart: each linear layer's outputs are those of the sequences alone."""
    layer = next(module for module in model.modules() if type(module).__name__.endswith("GatedDeltaNet"))
    gt.patch(model)
    x, cu = torch.randn(1, 30, 48), torch.tensor([0, 7, 8, 30], dtype=torch.int32)
    with torch.no_grad():
        packed = layer(x, cu_seq_lens_q=cu)
        for begin, end in zip(cu[:-1], cu[1:]):
            alone = layer(x[:, begin:end])
            assert alone.std() > 1e-2 and error(packed[:, begin:end], alone) < 1e-5


def test_unpatch(model, prompt):
    with torch.no_grad():
        before = logits(model, prompt)
        assert gt.patch(model) == 3 and gt.patch(model) == 3
        assert gt.unpatch(model) == 3 and gt.unpatch(model) == 0
        assert torch.equal(logits(model, prompt), before)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_what_is_refused(model):
    with pytest.raises(ValueError, match="Linear has no layer that gdn2 knows; those are Qwen3NextGatedDeltaNet"):
        gt.patch(torch.nn.Linear(2, 2))
    layer = next(module for module in model.modules() if type(module).__name__.endswith("GatedDeltaNet"))
    layer.activation = "gelu"
    with pytest.raises(ValueError, match="activation 'gelu'; it must be silu"):
        gt.patch(model)
    assert not any("forward" in module.__dict__ for module in model.modules())
