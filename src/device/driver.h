/* driver.h - the CUDA driver's functions that we call, found at run time and never linked. Where there is no driver nothing
 * here exists, and nothing else changes. None of these makes a context current: the caller's thread has one. */
#ifndef TAP_DEVICE_DRIVER_H
#define TAP_DEVICE_DRIVER_H

#include "tensortap/tensortap.h"

/* CUresult: 0 is success. */
typedef int tap_cu_result;
/* CUstream; NULL is the legacy default stream. */
typedef void *tap_cu_stream;

enum { TAP_CU_CAPTURE_IMPLICIT = 906 }; /* result: asked about the legacy stream while another stream captures */
enum { TAP_CU_CAPTURE_NONE = 0 };       /* what a stream's capture status is outside a capture */

/* The one table. X(member, symbol, parameters) */
#define TAP_DRIVER_MAP(X)                                                                                            \
    X(stream_is_capturing, cuStreamIsCapturing, (tap_cu_stream stream, int *status))                                 \
    X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))

typedef struct tap_driver {
#define X(member, symbol, parameters) tap_cu_result(*member) parameters;
    TAP_DRIVER_MAP(X)
#undef X
} tap_driver;

/* The driver: the library that TENSORTAP_CUDA_DRIVER names, else libcuda.so.1. NULL: there is none, or it lacks one of the
 * functions. Looked for once. */
const tap_driver *tap__driver(void);

#endif
