"""What the tests of gdn2.jax share: samples, the rules as functions of dictionaries, and their float64 references."""

import jax
import jax.numpy as jnp
import numpy as np
import token_loop

import gdn2.jax

# Small sizes that differ from one another; compiling costs more than running.
SIZES = dict(B=2, T=19, H=3, K=5, V=7)
SCALE = 0.4

CHUNKS = {
    "gdn2": gdn2.jax.chunk_gdn2,
    "kda": gdn2.jax.chunk_kda,
    "gdn": gdn2.jax.chunk_gdn,
    "gla": gdn2.jax.chunk_gla,
    "deltanet": gdn2.jax.chunk_delta_rule,
}
STEPS = {
    "gdn2": gdn2.jax.gdn2_decode_step,
    "kda": gdn2.jax.kda_decode_step,
    "gdn": gdn2.jax.gdn_decode_step,
    "gla": gdn2.jax.gla_decode_step,
    "deltanet": gdn2.jax.delta_rule_decode_step,
}


def names(rule):
    """The tensors of a rule, in the order of its functions' arguments."""
    return ("q", "k", "v", *token_loop.RULES[rule])


def sample(rule="gdn2", seed=3, **sizes):
    """inputs with h0 as JAX arrays, and the cotangents of o and of the final state."""
    x = token_loop.sample(rule, **SIZES | sizes, seed=seed)
    cotangents = x.pop("do"), x.pop("dh_final")
    return {name: jnp.asarray(value) for name, value in x.items()}, cotangents


def chunk(x, rule="gdn2", **options):
    """(o, h_final)"""
    arguments = (x[name] for name in names(rule))
    return CHUNKS[rule](*arguments, initial_state=x["h0"], output_final_state=True, scale=SCALE, **options)


def inner(outputs, cotangents):
    """What gradients are taken of."""
    return sum(jnp.sum(value * by) for value, by in zip(outputs, cotangents))


def gradients(x, cotangents, rule="gdn2", **options):
    return jax.grad(lambda x: inner(chunk(x, rule, **options), cotangents))(x)


def wide(x):
    return {name: np.asarray(value, np.float64) for name, value in x.items()}


def grouped_reference(x, cotangents, groups):
    """Outputs and gradients where each head of q, k, g, b serves `groups` heads of v: the float64 loop on repeated heads."""
    key_side = ("q", "k", "g", "b")
    repeated = {name: np.repeat(value, groups, 2) if name in key_side else value for name, value in wide(x).items()}
    outputs = token_loop.forward(repeated, scale=SCALE)[0]
    made = token_loop.gradients(repeated | dict(do=cotangents[0], dh_final=cotangents[1]), scale=SCALE)
    made = {name[1:]: value for name, value in made.items()}
    for name in key_side:
        B, T, heads, D = made[name].shape
        made[name] = made[name].reshape(B, T, heads // groups, groups, D).sum(3)
    return outputs, made
