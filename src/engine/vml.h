/* vml.h - elementary functions on arrays, of MKL's vector mathematics, found at run time where a framework has it loaded.
 * On Intel's processors they are what eager computes with, and faster than SLEEF's: of log, sin and others it takes half
 * the time. Elsewhere they are slower and not used. TENSORTAP_VML=1 or 0 decides instead. */
#ifndef TAP_ENGINE_VML_H
#define TAP_ENGINE_VML_H

#include <stdint.h>

/* X(instruction of pointwise_insn.def, MKL's name) */
#define TAP_VML_MAP(X)                                                                                               \
    X(Acos, Acos) X(Asin, Asin) X(Atan, Atan) X(Cos, Cos) X(Erfc, Erfc) X(Erfinv, ErfInv) X(Log, Ln) X(Log10, Log10) \
    X(Log2, Log2) X(Sin, Sin) X(Tan, Tan) X(Tanh, Tanh)

typedef enum tap__vml_index {
#define X(insn, name) TAP_VML_##insn,
    TAP_VML_MAP(X)
#undef X
        TAP_VML_END
} tap__vml_index;

/* Addresses, NULL where there is none: of void f(int n, const T *x, T *y, int64_t mode). */
typedef struct tap__vml {
    const void *f32[TAP_VML_END], *f64[TAP_VML_END];
} tap__vml;

/* High accuracy, subnormal numbers kept, nothing said about errors: as eager calls them. */
enum { TAP_VML_MODE = 0x2 | 0x140000 | 0x100 };

/* Never NULL; found once. Thread-safe. */
const tap__vml *tap__vml_find(void);

#endif
