/* kernel.c - what every kernel may say. */
#include "engine/kernel.h"

#include "base/status.h"

tap_status tap__refuse(const tap__call *call, tap_error *err)
{
    return tap_fail(err, TAP_E_UNSUPPORTED, "%s: no kernel for operands like these; the framework runs it", call->name);
}
