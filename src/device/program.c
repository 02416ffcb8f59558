/* program.c - the kernels in a device. */
#include "device/program.h"

#include "base/status.h"

#include <string.h>

/* The file as it is, and a zero. */
__asm__(".pushsection .rodata\n"
        ".balign 8\n"
        "tap__ptx_text:\n"
        ".incbin \"" TAP_PTX "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char tap__ptx_text[] __attribute__((visibility("hidden")));

tap_status tap__program_load(tap_program *out, tap_error *err)
{
    const tap_driver *driver = tap__driver();
    memset(out, 0, sizeof *out);
    if (!driver)
        return tap_fail(err, TAP_E_UNSUPPORTED, "CUDA: there is no driver here");
    TAP_TRY(tap__driver_check(driver->module_load(&out->module, tap__ptx_text), "cuModuleLoadData", err));
    tap_cu_result result = driver->module_function(&out->gate, out->module, "tap_gate");
    if (result == 0)
        result = driver->module_function(&out->leaf, out->module, "tap_leaf");
    tap_status status = tap__driver_check(result, "cuModuleGetFunction", err);
    if (status != TAP_OK)
        tap__program_unload(out);
    return status;
}

void tap__program_unload(tap_program *program)
{
    const tap_driver *driver = tap__driver();
    if (driver && program->module)
        driver->module_unload(program->module);
    memset(program, 0, sizeof *program);
}

static tap_status launch(tap_cu_function function, tap_cu_stream stream, unsigned blocks, unsigned threads,
                         const void *argument, tap_error *err)
{
    void *arguments[] = {(void *)(uintptr_t)argument};
    tap_cu_result result =
        tap__driver()->launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
    return tap__driver_check(result, "cuLaunchKernel", err);
}

tap_status tap__program_gate(const tap_program *program, tap_cu_stream stream, const tap_k_gate *gate, tap_error *err)
{
    return launch(program->gate, stream, 1, 1, gate, err);
}

tap_status tap__program_leaf(const tap_program *program, tap_cu_stream stream, const tap_k_tap *tap, unsigned blocks,
                             unsigned threads, tap_error *err)
{
    return launch(program->leaf, stream, blocks, threads, tap, err);
}
