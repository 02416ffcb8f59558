/* float_mode.h - numbers must not depend on the caller's floating-point mode: programs turn flushing of subnormals on
 * (torch.set_flush_denormal does), which would change minima, zero counts and sums. */
#ifndef TAP_TENSOR_FLOAT_MODE_H
#define TAP_TENSOR_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* Default mode; returns what tap__float_mode_leave needs. Writing the register is slow, so only when it differs. */
static inline uint32_t tap__float_mode_enter(void)
{
    uint32_t mode = _mm_getcsr();
    if (__builtin_expect((mode & 0xFFC0u) != 0x1F80u, 0))
        _mm_setcsr(0x1F80u);
    return mode;
}

static inline void tap__float_mode_leave(uint32_t mode)
{
    if (__builtin_expect((mode & 0xFFC0u) != 0x1F80u, 0))
        _mm_setcsr(mode);
}

#elif defined(__aarch64__)

static inline uint64_t tap__float_mode_enter(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    if (__builtin_expect(mode != 0, 0))
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return mode;
}

static inline void tap__float_mode_leave(uint64_t mode)
{
    if (__builtin_expect(mode != 0, 0))
        __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

#else

static inline uint32_t tap__float_mode_enter(void)
{
    return 0;
}

static inline void tap__float_mode_leave(uint32_t mode)
{
    (void)mode;
}

#endif
#endif
