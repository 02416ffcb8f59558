/* by_isa.h - which of a file's versions runs: the one made for the instruction set in use (tap_isa_name). */
#ifndef TAP_TENSOR_BY_ISA_H
#define TAP_TENSOR_BY_ISA_H

#include "tensortap/tensortap.h"

#include <string.h>

/* The body of a function that returns prefix_avx512, prefix_avx2, prefix_neon or prefix_plain. */
#if defined(__x86_64__)
#define TAP__BY_ISA(prefix)                                                                                          \
    const char *isa = tap_isa_name();                                                                                \
    return strcmp(isa, "avx512") == 0 ? &prefix##_avx512 : strcmp(isa, "avx2") == 0 ? &prefix##_avx2 : &prefix##_plain
#elif defined(__aarch64__)
#define TAP__BY_ISA(prefix) return strcmp(tap_isa_name(), "neon") == 0 ? &prefix##_neon : &prefix##_plain
#else
#define TAP__BY_ISA(prefix) return &prefix##_plain
#endif

#endif
