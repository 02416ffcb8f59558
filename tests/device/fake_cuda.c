/* fake_cuda.c - a CUDA driver for tests on machines without one: a library with the symbols of src/device/driver.h, loaded by
 * TENSORTAP_CUDA_DRIVER. What a test wants of it is set through the functions fake_*. */
#include <stdatomic.h>
#include <stddef.h>

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
