/* machine.h - what kernels need of the machine they run on: the device, or this process's threads in tests. */
#ifndef TAP_DEVICE_MACHINE_H
#define TAP_DEVICE_MACHINE_H

#ifdef __CUDA__

/* publish: everything written before is seen by whoever sees the value; observe: and the other way round */
#define TAP_K_UNROLL _Pragma("unroll")
#define KERNEL extern "C" __attribute__((global)) void
#define LAUNCHED(threads, blocks) KERNEL __attribute__((launch_bounds(threads, blocks))) /* so many at once on a processor */
#define DEVICE __attribute__((device, always_inline)) static inline /* a pointer to the arguments is no address */
/* The address is shown to the compiler's blind spot: a variable nobody else can name would be read before a barrier that others
 * write it at. */
#define SHARED(type, name, count)                                                                                    \
    __attribute__((shared)) type name[count];                                                                        \
    asm volatile("" : : "l"(name) : "memory")

DEVICE unsigned thread_index(void) { return (unsigned)__nvvm_read_ptx_sreg_tid_x(); }
DEVICE unsigned thread_count(void) { return (unsigned)__nvvm_read_ptx_sreg_ntid_x(); }
DEVICE unsigned block_index(void) { return (unsigned)__nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE unsigned block_count(void) { return (unsigned)__nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE void block_wait(void) { __syncthreads(); }
DEVICE void device_fence(void) { __nvvm_membar_gl(); }
DEVICE unsigned long long observe(const volatile unsigned long long *at) { return *at; }
DEVICE void publish(volatile unsigned long long *at, unsigned long long value)
{
    __nvvm_membar_sys();
    *at = value;
}
DEVICE unsigned add_to(unsigned *at, unsigned n) { return (unsigned)__nvvm_atom_add_gen_i((int *)at, (int)n); }
DEVICE unsigned exchange(unsigned *at, unsigned n) { return (unsigned)__nvvm_atom_xchg_gen_i((int *)at, (int)n); }
DEVICE double square_root(double x) { return __nvvm_sqrt_rn_d(x); }
DEVICE unsigned long long clock_ns(void)
{
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
DEVICE void nap(void) { asm volatile("nanosleep.u32 500;"); }

#else

#include <math.h>
#include <sched.h>
#include <time.h>

#define TAP_K_UNROLL
#define KERNEL void
#define LAUNCHED(threads, blocks) KERNEL
#define DEVICE static inline
#define SHARED(type, name, count) type *const name = tap_k_shared()

/* Given by who runs kernels natively: where the calling thread is, the memory its block shares, and the block's barrier. */
typedef struct tap_k_place {
    unsigned thread, threads, block, blocks;
} tap_k_place;
const tap_k_place *tap_k_here(void);
void *tap_k_shared(void);
void tap_k_barrier(void);

DEVICE unsigned thread_index(void) { return tap_k_here()->thread; }
DEVICE unsigned thread_count(void) { return tap_k_here()->threads; }
DEVICE unsigned block_index(void) { return tap_k_here()->block; }
DEVICE unsigned block_count(void) { return tap_k_here()->blocks; }
DEVICE void block_wait(void) { tap_k_barrier(); }
DEVICE void device_fence(void) {} /* the atomics below order everything */
DEVICE unsigned long long observe(const volatile unsigned long long *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
DEVICE void publish(volatile unsigned long long *at, unsigned long long value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
DEVICE unsigned add_to(unsigned *at, unsigned n) { return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST); }
DEVICE unsigned exchange(unsigned *at, unsigned n) { return __atomic_exchange_n(at, n, __ATOMIC_SEQ_CST); }
DEVICE double square_root(double x) { return sqrt(x); }
DEVICE unsigned long long clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}
DEVICE void nap(void) { sched_yield(); }

#endif
#endif
