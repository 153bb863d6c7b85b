"""Element types: their names, questions about them, and promotion, against what jax 0.10.2 answers.

The tables were asked of jax once. Nodes are numbered: the dtypes of `dtypes.all_dtypes`, strong, then the same, weak. Each has
a letter; "-" is TypePromotionError, "?" what jax cannot answer (it fails on weak 2- and 4-bit integers). `_PAIRS` holds, for
x64 on, x64 off, and strict promotion with x64 on, a row of results for each node; `_TRIPLES` three nodes and their result.
"""
import base64
import threading
import warnings
import zlib

import ml_dtypes
import numpy as np
import pytest

import mini_jax.dtypes as public
import mini_jax.numpy as jnp
from mini_jax.core import config, dtypes

_PAIRS = (
    'c-rlm$!_XE5JmU=%at&EfW>4cGtcbsD%m9ezkB7Op}OfRXe)Xo5+_PwWR6nqZfI`Y>Gt}AWH=g6rs-_HSgzKa?QVZKp3ax7^Ua7j?RKNvg-D'
    'm<oNM&Z6U83K75hNmDlolowa;-|9RPzuOw&7Yz;VR{NRnKf5ssK}T#=L^0p!meamaDSQF*N+-'
    '{6cm?%<58gRw^(b6jyk<C)GPz_S1*9Jke}5k1o}<+x&+Ped+yrX%IJ;;fj6$U7Y~jw{ZAIZ@WRJpgkN8k_~NAga2s#DxfnOJGS{D;Jj{B(8u'
    'JVJcQkT#1ml2G)eB^mr53A|!5r4Ph#=xr!SR61TvXFg0gu#H|R4J77ncT5x?7A#o4v2~$g|gS`le2jD=MT5&k#E9W3`xipTzkubI5R4lop2#'
    'F_p6=A9oi@$ghA@K~H2~#WbCs}qD$+E@;xDcjR&~ZjT3XKfN2vaMvhcr6c-'
    'Vw*2L>&9}j&DVbV|icEMa1>QPatm<2yOL+V&w8@RLgOQYmBOFs^WKXby4^={xUHt2iv=qTjwHYaGn+s)fH_sM6}Exk(*&6GXuq&87f}QV9}W'
    '2B0^Wr>%}(ECQP;V4*$7!L4C2@JCfr4nDSO>5A1v~nw(baWw|3MzUaEGTDik*wagt!@kQ4at=!>?W$y5cR_^#Q@kO~KO^e*&wrb@Lx7Dc;J='
    '0<34p&UeVet-'
    '*l{<b+eCLjL?(pXhS~>M{2Z{A^2Z?I#s4a@Q;{o+Wb?=Dd4<e3zd&id|s<}fIwcMeJA3)wJ5ZdY=64l)Cgy_#5n)p>V8Q$tI6PrMOR8~i{&N'
    'ZFEd0IrXu4tPfqGbk&+zb<$87SV&Q1NO8i^dEW5xR0-FSdXdVXCzS_|LTp>WdxuQy$v629(?ZEq6f49nf+I{q{wX=MImEfh6+W;S-'
    'SvB99MV5ktSo?|1k`f9`;mJD}taXu0EhH1UW$cZedU_ae_7vWWCf<ncifF>^(Jze5w@<PK=L!+zxg&jpV=(as&va)*0aD?AfCJR;8>&~nH9<'
    'ZbXcczDHI?tqp%d`onPN5Ml7P40k}JN$3NDuIZ(LljX)5HWYiB2Fencu_>0tJ@x4G!YjyMJOUNsP{YS?;Y|#pP}7ke~WMNe~Z>$;fRsMTYQU'
    'uRkZhxthz(trMCDF`m9Lp')
_TRIPLES = (
    'c-j?~SF)=x5JXqhRmiLWlXFIfKaor@V4^Rq{_%drP^FnU-'
    'K|IZV@&k%uCweUQB=_nb>2Ec{Refth~IAhH5epP_eg#$d{T9ZO7lD(r`YK#r{EjjmoC2(6lEt_ws9xsNg!j*5kB#-'
    '$6L(HHs8A*F5@C?p(slHj%ziFx^N4%E&<m%&NX!Sghi+f7fItDUTDGQEFz9G{7Uwf<wtZw1W{H(+65WevL<MP%X`3CJ`Tq|EGX(={;oKwLgP'
    '_G{h6lZVZ(dw2(%6E>x7x);3Sot#)Ds75nMl^9Tp-#HB9zklU_rnyfUJR7@jt)O+)4E&Lu76+2$BkLVVeU{EZ@-'
    'Te<WuC2>%(W_IS&9Tn+et_yMgB<EaA@-P!LzJ{Tgi6vCl!g|KPBYbI^lG*o-'
    'ZY4r_5G6Shu??VmKU8$2;X?759{i|ph|&X$e3>E)ioGU@>A9GSG~JdSJQI=eYu>XzHg6)#Lbm+X^oyo$yWs~xti?DYD5Z;V7h`re*$UZ-'
    'E@W6(48akc?I#d!Y3|-'
    '^q77fze1u@N0=0VZ*`#F8pulx%;C&t6hQs$usm2=!9#4p(gT?Rs_|@YfK5(o9zV(K0IU#@Xd22aN`UxTEcYTuJd~Gi!`AbGo6a&);KH&>lck'
    '`xI*geUMtOuH1CQ(L^L=39hsa2IE<hn?5*Jx{vT#S$$OJbOl*{4@JDY9}YHaT3$O$9a0x+V*YIy^rc7AJ@Da^Zjed^5Lms>$H^d-u-'
    '<#czSF)yRAYU-5!78jfn0Bz?6hXQ*VT4WrMdY{{FvUgDV4HJN4}c01axkYGFFn2SX;2G9G$=^G@yTiwF#svutqX?PK`t3!+g{2m1o-'
    'n=!y^WXCIdZ$hL7JE@yPI5Ir4DvzppM$U+LdI3>ai(nexbB0$_~$I(u%hVQ`+g$V3GZ`={uu7oQ_1`i-'
    '3zgkB$31l%%~YZY*3b!7#F2X98soaDyfzFXWaW5Mp2()sB1^Q)TZhAm;Tinq;VzXI3f9JShf-2`GB5Y2oE01rJ><Z-'
    'WE?}#Vh;WGot52Wl==!KhexRddG$G$C2spP1c67ccj6{`#e|FoXIL<e+Jv1CyIQ@*|P>8@9-'
    '50S)*8=6x0$ZaXI%T4=>|p(wP@$*A56bAM0~~`!HaYw-'
    ')I}ef<gNm7og4u$$u8`Y5*Ae$>cJVdxj!_zlnddDi_en?>;YfM+ISm36SF13L`%$s<g+Pk6=Ty{6_RrHlz|XK~@+6;@EJlc<4)ZdhTQD=9K7'
    '`(t@-d8L;$MncPpPD-WxoSSWOe;><ROA)lc2~j&lM!x00N+C=AgWLYxEST`r0?eWSKWp&WvaC=K;?ofPe-'
    '3YHi}DFSYLRFS_}d3enK3>L(dfP2OpepuW1QM7JN`}tVS!gay>wH<s-?(2Wu|vCB08Zu7;~!HS>JJ7e<e~xMs(B?8J#C+m1V-'
    'C;pK(rmE|CFCS)&B!zcs+KdlIN7sjtAp{<5_x#dY}B4J-Fxsex}L7G^HV-'
    '*fP(=@;8JiY5ryCBYIbEH&+J1H)2y_j@NWU*X#jK)aWc>eth!#~PcDNWMa%=mT(@=ux9{^nOsg5YLJGAR|pZz$+8&YKf=$k4f^YbQgZ4vKol'
    'aom=1?BCiI?H3e>M{_ewY~Nq@15wmOeCpqf@NDx$M4cQ7Wj*bML@rjdvd}a|@jR9L5ra7>Mp@?aF8|%RC0ZWpTdRZ*K;s;07lvbd5_`MvUA)'
    'OqwwU|??wu3kxk0sd!n|9r#~cbrOWye-m+n1$Z)T33Qg_+ht(_6N2Z$$oO|(R@`@(cX`!RJ~LPy^5>-PBP^U^aI*4vWr%yrH`r|$o-'
    'I(K&J9Nb?DI((=;)w((o@@$4DtxFmSF1oKt=K8`>wTQO|l-'
    'r+&Y|Csej?XZK<cNs(BlZ#=#k^ylUDu~G%;@HzZ>h9T#Gp^qlO#Rwc?s^<jb$#D=uC6{p3l8=8d>-'
    'zdve}Pr2=Dq+xpkBU@LzR@2q60$%MDAkNk``*|8c5Njw5_XSesfU>+wSO9yjPNX`$rI!<bNb2JX3=qLBx_cVP@w~r{4hO-ft-'
    'rJ+*L4VoJ#8n5G5TOaXuoC~!_8t61M49cGmQmEw6Tu<gXN&(?{}3*}(D^k^lcXTGr)zzJ%lmlC-eRF9<&6Z7gM;wlh}0V<eTA6981<QDLvH5'
    '6X^>tlL_HC(S2MWz5B@Rww%plyKwvedCC?KvKN{ZCN!lSze|dl?6p;UM`4;$Sn+|beV>|Qw{~O~U-O3HW')

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NODES = [(dtype, weak) for weak in (False, True) for dtype in dtypes.all_dtypes]
_LETTER_OF = dict(zip(_NODES, _LETTERS))


def _table(blob):
    return zlib.decompress(base64.b85decode(blob)).decode()


def _answer(*nodes):
    try:
        return _LETTER_OF[dtypes.promote(*nodes)]
    except dtypes.TypePromotionError:
        return "-"


@pytest.mark.parametrize("mode, x64, promotion", [(0, True, "standard"), (1, False, "standard"), (2, True, "strict")])
def test_every_pair_promotes_as_in_jax(mode, x64, promotion):
    rows = _table(_PAIRS).split("\n")[mode * 56:(mode + 1) * 56]
    with config.enable_x64(x64), config.numpy_dtype_promotion(promotion):
        wrong = []
        for a, row in zip(_NODES, rows):
            for b, expected in zip(_NODES, row):
                if expected != "?" and _answer(a, b) != expected:
                    wrong.append((a, b, _answer(a, b), expected))
        assert wrong == []


def test_promote_pair_is_promote_of_two():
    for a in _NODES[::3]:
        for b in _NODES[::5]:
            try:
                found = dtypes.promote_pair(*a, *b)
            except dtypes.TypePromotionError:
                found = None
            assert (_LETTER_OF[found] if found else "-") == _answer(a, b)


def test_three_operands_promote_as_in_jax():
    triples = _table(_TRIPLES)
    node = dict(zip(_LETTERS, _NODES))
    with config.enable_x64(True):
        for a, b, c, expected in zip(*[iter(triples)] * 4):
            assert _answer(node[a], node[b], node[c]) == expected, (node[a], node[b], node[c])


@pytest.mark.parametrize("operands, expected", [
    ((1,), ("int32", True)), ((True,), ("bool", False)), ((1.5,), ("float32", True)), ((1j,), ("complex64", True)),
    ((int,), ("int32", True)), ((float, "bfloat16"), ("bfloat16", False)), (("float16", 1), ("float16", False)),
    ((None,), ("float32", False)), ((np.float64(1),), ("float32", False)), ((np.arange(3), 1.5), ("float32", True)),
    ((np.int8(1), 200), ("int8", False)), ((np.uint8(1), np.int8(1)), ("int16", False)), ((1, 2.0), ("float32", True)),
    ((np.zeros(2, dtypes.float0),), (str(dtypes.float0), False)), ((np.longlong(1),), ("int32", False)),
])
def test_result_type_of_values_types_and_names(operands, expected):
    dtype, weak = public.result_type(*operands, return_weak_type_flag=True)
    assert (str(dtype), weak) == expected
    assert public.result_type(*operands) is dtype


def test_result_type_refuses_what_has_no_dtype():
    for operands, error in [((), ValueError), (([1],), TypeError), (("foo",), TypeError), ((object(),), TypeError),
                            ((np.zeros(2, dtypes.float0), 1), ValueError)]:
        with pytest.raises(error):
            public.result_type(*operands)


def test_promotion_errors_name_the_dtypes_and_a_way_out():
    with pytest.raises(dtypes.TypePromotionError, match=r"bf16 and f8_e5m2 .*astype"):
        dtypes.promote((dtypes.float8_e5m2, False), (dtypes.bfloat16, False))
    with config.numpy_dtype_promotion("strict"), pytest.raises(dtypes.TypePromotionError, match="f32 and i32.*'strict'"):
        dtypes.promote((dtypes.int32, False), (dtypes.float32, False))


@pytest.mark.parametrize("a, b, expected", [
    ("uint64", "int8", "float64"), ("uint64", int, "uint64"), ("uint64", float, "float64"), (int, "int8", "int8"),
    (int, int, "int64"), (int, bool, "int64"), (float, "bfloat16", "bfloat16"), (float, int, "float64"),
    (complex, "int8", "complex128"), (complex, "bfloat16", "complex64"), ("bool", "int64", "int64"), ("bool", bool, "bool")])
def test_promote_types_keeps_64_bits(a, b, expected):
    assert dtypes.promote_types(a, b) == np.dtype(getattr(ml_dtypes, expected, expected))


# ---- names ----------------------------------------------------------------------------------------------------------

def test_names_in_programs_and_in_stablehlo():
    programs = ("bool u2 u4 u8 u16 u32 u64 i2 i4 i8 i16 i32 i64 f4_e2m1fn f8_e3m4 f8_e4m3 f8_e4m3b11fnuz f8_e4m3fn f8_e4m3fnuz "
                "f8_e5m2 f8_e5m2fnuz f8_e8m0fnu bf16 f16 f32 f64 c64 c128").split()
    stablehlo = ("i1 ui2 ui4 ui8 ui16 ui32 ui64 i2 i4 i8 i16 i32 i64 f4E2M1FN f8E3M4 f8E4M3 f8E4M3B11FNUZ f8E4M3FN f8E4M3FNUZ "
                 "f8E5M2 f8E5M2FNUZ f8E8M0FNU bf16 f16 f32 f64 complex<f32> complex<f64>").split()
    assert [dtypes.short_name(d) for d in dtypes.all_dtypes] == programs
    assert [dtypes.mlir_name(d) for d in dtypes.all_dtypes] == stablehlo
    assert dtypes.short_name(dtypes.float0) == "float0" and dtypes.mlir_name(dtypes.float0) == "i1"
    assert dtypes.mlir_tensor((3, 4), dtypes.float32) == "tensor<3x4xf32>"
    assert dtypes.mlir_tensor((), dtypes.complex64) == "tensor<complex<f32>>"
    with pytest.raises(TypeError, match="object"):
        dtypes.mlir_name(np.dtype(object))


class _Key(dtypes.ExtendedDtype):
    name, type, physical_shape, physical_dtype = "key<fry>", dtypes.prng_key, (2,), dtypes.uint32


def test_extended_dtypes_are_blocks_of_physical_elements():
    key = _Key()
    assert dtypes.short_name(key) == "key<fry>" and key.itemsize == 8 and key == _Key() and hash(key) == hash(_Key())
    assert dtypes.mlir_tensor((5,), key) == "tensor<5x2xui32>"
    assert dtypes.canonicalize(key) is key and dtypes.result_type(key, key) is key
    assert dtypes.issubdtype(key, dtypes.prng_key) and dtypes.issubdtype(key, dtypes.extended)
    assert dtypes.issubdtype(key, np.generic) and not dtypes.issubdtype(key, np.floating) and dtypes.issubdtype(key, key)
    assert not dtypes.issubdtype(np.float32, key) and not dtypes.issubdtype(np.float32, dtypes.extended)
    with pytest.raises(TypeError, match="do not mix with numbers"):
        dtypes.result_type(key, 1)
    with pytest.raises(ValueError):
        public.canonicalize_dtype(key)
    assert public.canonicalize_dtype(key, allow_extended_dtype=True) is key


# ---- canonical dtypes -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("given, off, on", [
    ("float64", "float32", "float64"), (float, "float32", "float64"), (int, "int32", "int64"), (bool, "bool", "bool"),
    (complex, "complex64", "complex128"), (None, "float32", "float64"), (np.int64, "int32", "int64"),
    (np.longlong, "int32", "int64"), ("uint8", "uint8", "uint8"), (np.dtype("float16"), "float16", "float16"),
    (ml_dtypes.bfloat16, "bfloat16", "bfloat16"), ("int4", "int4", "int4"), ("float8_e4m3fn",) * 3])
def test_without_x64_the_64_bit_dtypes_stand_for_32_bit_ones(given, off, on):
    named = {d.name: d for d in dtypes.all_dtypes}
    assert dtypes.canonicalize(given) is named[off]
    with config.enable_x64(True):
        assert dtypes.canonicalize(given) is named[on]
    assert public.canonicalize_dtype(given) is named[off]


def test_explicit_64_bit_requests_warn_and_python_types_do_not():
    with pytest.warns(UserWarning, match="zeros.*float64.*float32.*jax_enable_x64") as record:
        assert dtypes.requested("float64", "zeros") == np.float32
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (float, int, complex, None, "float32", "int8"):
            dtypes.requested(quiet, "zeros")
        with config.enable_x64(True):
            assert dtypes.requested("float64", "zeros") == np.float64
    for not_ours in (object, str, "datetime64[s]"):
        with pytest.raises(TypeError, match="arange"):
            dtypes.requested(not_ours, "arange")


# ---- questions ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("a, b, expected", [
    (ml_dtypes.bfloat16, np.floating, True), (ml_dtypes.int4, np.signedinteger, True), (ml_dtypes.int4, np.integer, True),
    (ml_dtypes.uint4, np.signedinteger, False), (int, np.integer, True), ("bfloat16", np.inexact, True),
    (dtypes.float0, np.generic, True), (dtypes.float0, np.void, True), (dtypes.prng_key, dtypes.extended, True),
    (dtypes.prng_key, np.generic, True), (dtypes.extended, np.generic, True), (ml_dtypes.bfloat16, ml_dtypes.bfloat16, True),
    (np.float32, np.dtype("float32"), True), (np.float32, float, False), (float, np.float64, True), ("int64", int, True),
    ("int32", int, False), (np.float32, np.complexfloating, False), (ml_dtypes.float8_e4m3fn, np.number, True),
    (ml_dtypes.bfloat16, float, False), (np.bool_, np.integer, False), (ml_dtypes.bfloat16, "float16", False),
    (np.complex64, np.inexact, True), (np.floating, np.inexact, True), (np.floating, np.float32, False), (bool, np.bool_, True)])
def test_issubdtype(a, b, expected):
    assert public.issubdtype(a, b) is expected


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "bool_", "int4", "float8_e4m3fn", "complex64"])
def test_a_scalar_type_equals_its_dtype_from_either_side(name):
    scalar, other = getattr(jnp, name), jnp.uint16
    for same in (scalar.dtype, scalar.dtype.type, scalar):
        assert scalar == same and same == scalar and not scalar != same and same in (other, scalar)
    for different in (other, other.dtype, other.dtype.type, None, name, 3):
        assert scalar != different and different not in (scalar,)


def test_kinds_partition_the_dtypes():
    for d in dtypes.all_dtypes:
        kinds = [dtypes.is_bool(d), dtypes.is_signed(d), dtypes.is_unsigned(d), dtypes.is_floating(d), dtypes.is_complex(d)]
        assert kinds.count(True) == 1
        assert dtypes.is_integer(d) == (kinds[1] or kinds[2]) and dtypes.is_inexact(d) == (kinds[3] or kinds[4])
        assert dtypes.is_integer(d) == dtypes.issubdtype(d, np.integer)
        assert dtypes.is_floating(d) == dtypes.issubdtype(d, np.floating)
    assert not dtypes.is_inexact(dtypes.float0) and not dtypes.is_bool(dtypes.float0)


def test_finfo_iinfo_and_sizes():
    assert float(public.finfo("bfloat16").eps) == 0.0078125 and public.finfo(float).bits == 64
    assert public.finfo(np.complex64).dtype == np.float32 and float(public.finfo(ml_dtypes.float8_e4m3fn).max) == 448.0
    assert (public.iinfo("int4").min, public.iinfo(ml_dtypes.int4).max, public.iinfo(int).bits) == (-8, 7, 64)
    for ask, dtype in [(public.finfo, "int32"), (public.iinfo, "float32"), (public.iinfo, bool), (public.itemsize_bits, dtypes.float0)]:
        with pytest.raises(ValueError):
            ask(dtype)
    assert [public.itemsize_bits(d) for d in ("int4", "uint2", "float4_e2m1fn", bool, "float32", "complex128")] == [4, 2, 4, 8, 32, 128]


def test_related_dtypes():
    assert dtypes.to_real(dtypes.complex64) == np.float32 and dtypes.to_real(dtypes.int8) == np.int8
    assert dtypes.to_complex(dtypes.bfloat16) == np.complex64 and dtypes.to_complex(dtypes.float64) == np.complex128
    for x64, of_int64 in ((False, np.float32), (True, np.float64)):
        with config.enable_x64(x64):
            assert dtypes.to_inexact(dtypes.canonicalize("int64")) == of_int64
            assert dtypes.to_inexact(dtypes.int8) == dtypes.to_inexact(dtypes.bool_) == np.float32
            assert dtypes.to_inexact(dtypes.bfloat16) == dtypes.bfloat16
    assert dtypes.default_int() == np.int32 and dtypes.default_float() == np.float32


def test_dtype_and_weakness_of_values():
    from enum import IntEnum
    color = IntEnum("color", "red")
    assert dtypes.dtype_of(1) == np.int32 and dtypes.dtype_of(True) == np.bool_ and dtypes.dtype_of(1j) == np.complex64
    assert dtypes.dtype_of(np.ones(2)) == np.float32 and dtypes.dtype_of(color.red) == np.int32
    assert dtypes.dtype_of(np.float32) == np.float32
    assert [dtypes.is_weak(x) for x in (1, 1.0, 1j, color.red)] == [True] * 4
    assert [dtypes.is_weak(x) for x in (True, np.float64(1), np.ones(1), np.bool_(1))] == [False] * 4
    with pytest.raises(TypeError, match="no dtype"):
        dtypes.dtype_of("a")


def test_scalar_type_of():
    values = [1, 1.0, True, np.complex64(1), ml_dtypes.bfloat16(1), np.bool_(1), np.dtype("int8"), "int4", np.float32]
    assert [public.scalar_type_of(v) for v in values] == [int, float, bool, complex, float, bool, int, int, float]
    with pytest.raises(TypeError):
        public.scalar_type_of(np.zeros(1, dtypes.float0))


def test_python_ints_must_fit():
    dtypes.check_scalar_range(2**31 - 1)
    dtypes.check_scalar_range(1.0e300)
    dtypes.check_scalar_range(255, dtypes.uint8)
    for x, dtype in [(2**31, None), (-2**31 - 1, None), (256, dtypes.uint8), (-1, dtypes.uint8)]:
        with pytest.raises(OverflowError, match=str(x)):
            dtypes.check_scalar_range(x, dtype)
    with config.enable_x64(True):
        dtypes.check_scalar_range(2**40)


def test_x64_is_a_thread_s_own_affair():
    seen = []
    with config.enable_x64(True):
        thread = threading.Thread(target=lambda: seen.append(dtypes.canonicalize("float64")))
        thread.start()
        thread.join()
        assert dtypes.canonicalize("float64") == np.float64
    assert seen == [np.float32]


def test_public_names():
    names = """TypePromotionError bfloat16 canonicalize_dtype extended finfo float0 iinfo issubdtype itemsize_bits prng_key
               result_type scalar_type_of""".split()
    assert all(hasattr(public, name) for name in names)
    assert public.bfloat16 is ml_dtypes.bfloat16
