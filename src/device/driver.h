/* driver.h - the CUDA driver's functions that we call, found at run time and never linked. Where there is no driver nothing
 * here exists, and nothing else changes. None of these makes a context current: the caller's thread has one. */
#ifndef TAP_DEVICE_DRIVER_H
#define TAP_DEVICE_DRIVER_H

#include "tensortap/tensortap.h"

/* CUresult: 0 is success. */
typedef int tap_cu_result;
/* CUstream; NULL is the legacy default stream. CUmodule, CUfunction */
typedef void *tap_cu_stream, *tap_cu_module, *tap_cu_function;

enum { TAP_CU_CAPTURE_IMPLICIT = 906 }; /* result: asked about the legacy stream while another stream captures */
enum { TAP_CU_MODE_RELAXED = 2 };       /* a thread that may do what would end other threads' captures */
enum { TAP_CU_REGISTER_MAPPED = 3 };    /* for every context, and for kernels at the same address */
enum { TAP_CU_CAPTURE_NONE = 0 };       /* what a stream's capture status is outside a capture */

/* The one table. X(member, symbol, parameters) */
#define TAP_DRIVER_MAP(X)                                                                                            \
    X(stream_is_capturing, cuStreamIsCapturing, (tap_cu_stream stream, int *status))                                 \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                                         \
    X(alloc, cuMemAlloc_v2, (void **out, size_t bytes))                                                              \
    X(release, cuMemFree_v2, (void *at))                                                                             \
    X(fill, cuMemsetD8_v2, (void *at, unsigned char value, size_t bytes))                                            \
    X(copy_down, cuMemcpyDtoH_v2, (void *to, const void *from, size_t bytes))                                        \
    X(host_register, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags))                                 \
    X(host_unregister, cuMemHostUnregister, (void *at))                                                              \
    X(write_value, cuStreamWriteValue64_v2, (tap_cu_stream stream, void *at, uint64_t value, unsigned flags))        \
    X(module_load, cuModuleLoadData, (tap_cu_module *module, const void *text))                                      \
    X(module_unload, cuModuleUnload, (tap_cu_module module))                                                         \
    X(module_function, cuModuleGetFunction, (tap_cu_function *function, tap_cu_module module, const char *name))     \
    X(launch, cuLaunchKernel,                                                                                        \
      (tap_cu_function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,        \
       unsigned threads_y, unsigned threads_z, unsigned shared_bytes, tap_cu_stream stream, void **arguments,        \
       void **extra))                                                                                                \
    X(error_text, cuGetErrorString, (tap_cu_result result, const char **text))

typedef struct tap_driver {
#define X(member, symbol, parameters) tap_cu_result(*member) parameters;
    TAP_DRIVER_MAP(X)
#undef X
} tap_driver;

/* The driver: the library that TENSORTAP_CUDA_DRIVER names, else libcuda.so.1. NULL: there is none, or it lacks one of the
 * functions. Looked for once. */
const tap_driver *tap__driver(void);
/* TAP_OK, or a failure that says what did not work. */
tap_status tap__driver_check(tap_cu_result result, const char *what, tap_error *err);

#endif
