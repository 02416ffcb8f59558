/* isa.c - which kernels run: the best the machine has, unless TENSORTAP_ISA or tap_isa_set name another. */
#include "tensor/kernels/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_avx2();
}
#endif

/* best first */
static const struct {
    const tap_kernels *kernels;
    bool (*usable)(void);
} CHOICES[] = {
#if defined(__x86_64__)
    {&tap__kernels_avx512, has_avx512},
    {&tap__kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&tap__kernels_neon, always},
#endif
    {&tap__kernels_plain, always},
};

static _Atomic(const tap_kernels *) current;

/* NULL or "": the best. NULL when there is no such one here. */
static const tap_kernels *find(const char *name)
{
    bool best = !name || !*name;
    for (size_t i = 0; i < sizeof CHOICES / sizeof CHOICES[0]; i++)
        if ((best || strcmp(CHOICES[i].kernels->name, name) == 0) && CHOICES[i].usable())
            return CHOICES[i].kernels;
    return NULL;
}

const tap_kernels *tap__kernels(void)
{
    const tap_kernels *kernels = atomic_load_explicit(&current, memory_order_acquire);
    if (__builtin_expect(!kernels, 0)) {
        kernels = find(getenv("TENSORTAP_ISA"));
        if (!kernels)
            kernels = find(NULL);
        atomic_store_explicit(&current, kernels, memory_order_release);
    }
    return kernels;
}

const char *tap_isa_name(void)
{
    return tap__kernels()->name;
}

bool tap_isa_set(const char *name)
{
    const tap_kernels *kernels = find(name);
    if (kernels)
        atomic_store_explicit(&current, kernels, memory_order_release);
    return kernels;
}
