/* require.c - what a trace promised of sizes that depend on data. They are known when their part of the graph is
 * planned, so a promise that holds is no work; one that does not is the framework's, which says what is wrong. */
#include "engine/kernel.h"

#include "base/status.h"

static tap_status prepare_require(tap__call *call, tap_error *err)
{
    return tap__call_attr(call, "value")->i >= 0 ? TAP_OK : tap__refuse(call, err);
}

static tap_status run_require(const tap__call *call, void *const *data, tap_error *err)
{
    (void)call, (void)data, (void)err;
    return TAP_OK;
}
const tap__kernel tap__kernel_require = {prepare_require, run_require, NULL};
