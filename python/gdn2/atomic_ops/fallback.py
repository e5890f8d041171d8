"""The functions that choose: the kernels on a TPU, the chunked reference elsewhere."""

from gdn2.atomic_ops.configs import DEFAULT_CONFIG
from gdn2.atomic_ops.gdn2_fwd import gdn2_pallas_forward
from gdn2.atomic_ops.gdn2_pipeline import gdn2_pallas_forward_trainable
from gdn2.atomic_ops.reference import gdn2_chunked_wy_reference
from gdn2.atomic_ops.utils import is_tpu_available


def gdn2_forward(q, k, v, w, b, g, scale, h0=None, config=None):
    """o and h_final; without a TPU by gdn2_chunked_wy_reference with chunks of config.bt and WITHOUT damping, whatever
    config.wy_eps is. config None: DEFAULT_CONFIG. Arguments and results: gdn2_chunked_wy_reference, in the order of the kernels.
    """
    return _choose(gdn2_pallas_forward, q, k, v, w, b, g, scale, h0, config or DEFAULT_CONFIG)


def gdn2_forward_trainable(q, k, v, w, b, g, scale, h0=None, config=None):
    """As gdn2_forward; on a TPU with the gradient of the kernels."""
    return _choose(gdn2_pallas_forward_trainable, q, k, v, w, b, g, scale, h0, config or DEFAULT_CONFIG)


def _choose(kernels, q, k, v, w, b, g, scale, h0, config):
    if is_tpu_available() and q.shape[-1] == 128:
        return kernels(q, k, v, w, b, g, scale, h0=h0, config=config)
    return gdn2_chunked_wy_reference(q, k, v, g, b, w, scale, chunk_size=config.bt, h0=h0)
