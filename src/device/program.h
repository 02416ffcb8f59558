/* program.h - the kernels in a device: the text of kernels/tap_kernel.ptx, compiled by the driver for the device of the context
 * that is current, and their launches. */
#ifndef TAP_DEVICE_PROGRAM_H
#define TAP_DEVICE_PROGRAM_H

#include "device/driver.h"
#include "device/kernels/room.h"

typedef struct tap_program {
    tap_cu_module module;
    tap_cu_function gate, leaf;
} tap_program;

/* Takes milliseconds, and waits for what runs on the device. The program belongs to the context. */
tap_status tap__program_load(tap_program *out, tap_error *err);
void tap__program_unload(tap_program *program);

/* The arguments are copied. Legal while the stream captures. */
tap_status tap__program_gate(const tap_program *program, tap_cu_stream stream, const tap_k_gate *gate, tap_error *err);
tap_status tap__program_leaf(const tap_program *program, tap_cu_stream stream, const tap_k_tap *tap, unsigned blocks,
                             unsigned threads, tap_error *err);

#endif
