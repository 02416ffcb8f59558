/* fake_cuda.c - a CUDA driver for tests on machines without one: a library with the symbols of src/device/driver.h, loaded by
 * TENSORTAP_CUDA_DRIVER. What a test wants of it is set through the functions fake_*. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "native_kernels.h"

static atomic_int capture_status, capture_result, capture_mode, modes_relaxed;

/* What cuStreamIsCapturing says from now on. */
void fake_capturing(int result, int status)
{
    atomic_store(&capture_result, result);
    atomic_store(&capture_status, status);
}

/* How often a thread made itself relaxed, and the mode that was left behind. */
int fake_relaxed(void)
{
    return atomic_load(&modes_relaxed);
}

int fake_mode(void)
{
    return atomic_load(&capture_mode);
}

int cuStreamIsCapturing(void *stream, int *status)
{
    (void)stream;
    *status = atomic_load(&capture_status);
    return atomic_load(&capture_result);
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    atomic_fetch_add(&modes_relaxed, *mode == 2);
    *mode = atomic_exchange(&capture_mode, *mode);
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

static atomic_int loaded, next_failure; /* the number of calls until one fails, 0: none does */

/* The n-th call from now on that can fail does, with error 999. */
void fake_fail(int n)
{
    atomic_store(&next_failure, n);
}

int fake_loaded(void)
{
    return atomic_load(&loaded);
}

static bool fails(void)
{
    int left = atomic_load(&next_failure);
    return left && atomic_fetch_sub(&next_failure, 1) == 1;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == 999 ? "made to fail" : "no text";
    return 0;
}

int cuModuleLoadData(void **module, const void *text)
{
    if (fails())
        return 999;
    if (!strstr(text, ".version 7.0") || !strstr(text, ".entry tap_leaf("))
        return 218; /* not a text that a device takes */
    atomic_fetch_add(&loaded, 1);
    *module = &loaded;
    return 0;
}

int cuModuleUnload(void *module)
{
    if (module != &loaded)
        return 1;
    atomic_fetch_sub(&loaded, 1);
    return 0;
}

static char gate_function, leaf_function;

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    if (fails())
        return 999;
    *function = !strcmp(name, "tap_gate") ? &gate_function : !strcmp(name, "tap_leaf") ? &leaf_function : NULL;
    return module == &loaded && *function ? 0 : 500;
}

int cuLaunchKernel(void *function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, void *stream, void **arguments, void **extra)
{
    (void)stream, (void)extra;
    if (fails())
        return 999;
    if (!blocks || blocks_y != 1 || blocks_z != 1 || !threads || threads_y != 1 || threads_z != 1 || shared_bytes)
        return 1;
    if (function == &gate_function)
        native_gate(arguments[0]);
    else
        native_leaf(arguments[0], blocks, threads);
    return 0;
}
