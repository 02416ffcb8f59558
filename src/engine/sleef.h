/* sleef.h - elementary functions on whole vectors. They are SLEEF's, found in the process at run time (a framework has
 * them loaded, or libsleef is installed); where one is missing the kernels call the C library, value by value. */
#ifndef TAP_ENGINE_SLEEF_H
#define TAP_ENGINE_SLEEF_H

/* X(name, accuracy): the functions of one argument, then of two. */
#define TAP_SLEEF_MAP(X)                                                                                             \
    X(acos, "u10") X(acosh, "u10") X(asin, "u10") X(asinh, "u10") X(atan, "u10") X(atanh, "u10") X(cos, "u10")       \
    X(cosh, "u10") X(erf, "u10") X(erfc, "u15") X(exp, "u10") X(exp2, "u10") X(expm1, "u10") X(lgamma, "u10")        \
    X(log, "u10") X(log10, "u10") X(log1p, "u10") X(log2, "u10") X(sin, "u10") X(sinh, "u10") X(tan, "u10")          \
    X(tanh, "u10") X(atan2, "u10") X(fmod, "") X(hypot, "u05") X(nextafter, "") X(pow, "u10")

typedef enum tap__sleef_index {
#define X(name, accuracy) TAP_SLEEF_##name,
    TAP_SLEEF_MAP(X)
#undef X
        TAP_SLEEF_END
} tap__sleef_index;

/* Addresses, NULL where there is none; the kernels know the types: vectors of the instruction set's width. */
typedef struct tap__sleef {
    void *f32[TAP_SLEEF_END], *f64[TAP_SLEEF_END];
} tap__sleef;

/* isa: as tap_isa_name() names it. Never NULL; found once. Thread-safe. */
const tap__sleef *tap__sleef_find(const char *isa);

#endif
