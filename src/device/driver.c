/* driver.c - finding the CUDA driver, and what little of it is asked for directly. */
#include "device/driver.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tap_driver found;
static bool is_there;

static void find_driver(void)
{
    const char *path = getenv("TENSORTAP_CUDA_DRIVER");
    void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    is_there = true;
#define X(member, symbol, parameters)                                                                                \
    memcpy(&found.member, &(void *){dlsym(library, #symbol)}, sizeof found.member);                                  \
    is_there &= found.member != NULL;
    TAP_DRIVER_MAP(X)
#undef X
}

const tap_driver *tap__driver(void)
{
    pthread_once(&once, find_driver);
    return is_there ? &found : NULL;
}

tap_status tap__driver_check(tap_cu_result result, const char *what, tap_error *err)
{
    const char *text = NULL;
    if (result == 0)
        return TAP_OK;
    if (!is_there || found.error_text(result, &text) != 0 || !text)
        text = "unknown error";
    return tap_fail(err, TAP_E_INTERNAL, "CUDA: %s: error %d: %s", what, result, text);
}

/* The two that keep captures whole are worth having from a driver that lacks others. */

bool tap_cuda_is_capturing(void *stream)
{
    int status = TAP_CU_CAPTURE_NONE;
    pthread_once(&once, find_driver);
    tap_cu_result result = found.stream_is_capturing ? found.stream_is_capturing(stream, &status) : 0;
    /* one that a blocking stream's capture refuses to answer is no place to read from either */
    return result == TAP_CU_CAPTURE_IMPLICIT || (result == 0 && status != TAP_CU_CAPTURE_NONE);
}

int tap_cuda_capture_mode(int mode)
{
    pthread_once(&once, find_driver);
    if (found.exchange_capture_mode)
        found.exchange_capture_mode(&mode);
    return mode;
}
