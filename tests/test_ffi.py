"""Functions of compiled libraries, called by programs (ffi_call): LAPACK's from jaxlib, and one that is compiled here."""
import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import ffi
from mini_jax.runtime import xla

SOURCE = r"""
#include <string.h>
#include "xla/ffi/api/c_api.h"

static int calls = 0;
int count(void) { return calls; }

struct extension { size_t size; int type; struct extension* next; XLA_FFI_Metadata* metadata; };

/* y = (± factor * times + the sum of more) * x, n = the length of word. Attributes come in the order of their names. */
XLA_FFI_Error* ScaleHandler(XLA_FFI_CallFrame* frame) {
  struct extension* asked = (struct extension*)frame->extension_start;
  if (asked && asked->type == 1) {                     /* XLA asks for the version */
    asked->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    asked->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  calls += 1;
  void** attrs = frame->attrs.attrs;
  float factor = *(float*)((XLA_FFI_Scalar*)attrs[0])->value;
  XLA_FFI_Array* more = attrs[1];
  char negate = *(char*)((XLA_FFI_Scalar*)attrs[2])->value;
  int64_t times = *(int64_t*)((XLA_FFI_Scalar*)attrs[3])->value, size = 1;
  XLA_FFI_ByteSpan* word = attrs[4];
  float by = factor * times * (negate ? -1 : 1);
  for (size_t i = 0; i < more->size; i++) by += ((int32_t*)more->data)[i];
  XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0], *n = frame->rets.rets[1];
  for (int64_t d = 0; d < x->rank; d++) size *= x->dims[d];
  for (int64_t i = 0; i < size; i++) ((float*)y->data)[i] = by * ((float*)x->data)[i];
  size = 1;
  for (int64_t d = 0; d < n->rank; d++) size *= n->dims[d];
  for (int64_t i = 0; i < size; i++) ((int32_t*)n->data)[i] = word->len;
  if (word->len == 3 && !memcmp(word->ptr, "bad", 3)) {
    XLA_FFI_Error_Create_Args error = {sizeof(error), NULL, "a bad word", XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame->api->XLA_FFI_Error_Create(&error);
  }
  return NULL;
}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("ffi")
    (directory / "scale.c").write_text(SOURCE)
    subprocess.run([compiler, "-O0", "-fPIC", "-shared", "-I", ffi.include_dir(), str(directory / "scale.c"), "-o", str(directory / "scale.so")],
                   check=True)
    library = ctypes.cdll.LoadLibrary(str(directory / "scale.so"))
    ffi.register_ffi_target("test.scale", ffi.pycapsule(library.ScaleHandler), platform="cpu")

    def call(x, method=None, shape=None, effect=False, **more):
        attributes = {"factor": np.float32(2), "times": 3, "negate": True, "word": "four", "more": np.array([1, 2], np.int32)} | more
        results = (jax.ShapeDtypeStruct(x.shape if shape is None else shape, np.float32), jax.ShapeDtypeStruct((), np.int32))
        return ffi.ffi_call("test.scale", results, vmap_method=method, has_side_effect=effect)(x, **attributes)
    call.count = library.count
    return call


def test_arrays_and_attributes_arrive(scale):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for f in (scale, jax.jit(scale)):
        y, n = f(x)
        assert np.array_equal(y, -3 * x) and n == 4
    y, n = scale(x, factor=np.float32(0.5), times=1, negate=False, word='a "word"', more=np.array([], np.int32))
    assert np.array_equal(y, x / 2) and n == 8
    with pytest.raises(Exception, match="a bad word"):
        scale(x, word="bad")
    with pytest.raises(TypeError, match="an attribute is a number"):
        scale(x, factor=object())


def test_vmap_methods(scale):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for method in ("sequential", "expand_dims", "broadcast_all", "legacy_vectorized"):
        def one(v):
            return scale(v, method)[0]
        assert np.array_equal(jax.vmap(one)(x), -3 * x) and np.array_equal(jax.vmap(one, 1, 1)(x), -3 * x)
    with pytest.raises(NotImplementedError, match="no vmap_method"):
        jax.vmap(lambda v: scale(v)[0])(x)
    with pytest.raises(ValueError, match="vmap_method is one of"):
        scale(x, "all")


def test_effects_are_kept_and_derivatives_are_refused(scale):
    x = np.ones(3, np.float32)
    before = scale.count()
    jax.jit(lambda x: (scale(x), x)[1])(x)
    assert scale.count() == before                      # nobody uses it
    jax.jit(lambda x: (scale(x, effect=True), x)[1])(x).block_until_ready()
    assert scale.count() == before + 1
    with pytest.raises(ValueError, match="ffi_call of 'test.scale' has no derivative"):
        jax.grad(lambda x: scale(x)[0].sum())(x)

    @jax.custom_vjp
    def f(x):
        return scale(x)[0]
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (scale(ct)[0],))
    assert np.array_equal(jax.jit(jax.grad(lambda x: f(x).sum()))(x), [-3, -3, -3])


def test_it_is_called_over_meshes(scale):
    from mini_jax.sharding import NamedSharding, PartitionSpec as P
    mesh, x = jax.make_mesh((4, 2), ("x", "y")), np.arange(8, dtype=np.float32)
    spread = jax.device_put(x, NamedSharding(mesh, P("x")))
    assert np.array_equal(jax.jit(lambda x: scale(x)[0])(spread), -3 * x)
    for effect in (False, True):
        f = jax.shard_map(lambda x: scale(x, effect=effect)[0], mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        assert np.array_equal(f(x), -3 * x)
    with pytest.raises(NotImplementedError, match="make it in a shard_map"):
        jax.jit(lambda x: scale(x, effect=True)[0])(spread)


def test_lapack_with_layouts_and_aliases():
    xla.register_lapack()
    a = np.array([[4, 2], [2, 5]], np.float32)
    f = ffi.ffi_call("lapack_spotrf_ffi", (jax.ShapeDtypeStruct((2, 2), np.float32), jax.ShapeDtypeStruct((), np.int32)),
                     input_layouts=[(1, 0)], output_layouts=[(1, 0), ()], input_output_aliases={0: 0})
    factor, info = jax.jit(lambda a: f(a, uplo=np.uint8(ord("L"))))(a)
    assert info == 0 and np.allclose(jnp.tril(factor), np.linalg.cholesky(a), atol=1e-6)
    with pytest.raises(ValueError, match="2 layouts for 1 arrays"):
        ffi.ffi_call("lapack_spotrf_ffi", (jax.ShapeDtypeStruct((2, 2), np.float32),), input_layouts=[(0, 1), (0, 1)])(a)
