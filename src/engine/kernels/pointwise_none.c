/* pointwise_none.c - stands in until the chain compiler is there: no node is taken. */
#include "engine/kernels/pointwise.h"

#include "base/status.h"

__attribute__((weak)) bool tap__pw_supports(const tap__call *call)
{
    (void)call;
    return false;
}

__attribute__((weak)) tap_status tap__pw_build(const tap__pw_node *nodes, int nnodes, const tap__operand *loads, int nloads,
                                               const tap__operand *stores, int nstores, int threads, tap__pw **out,
                                               tap_error *err)
{
    (void)nodes, (void)nnodes, (void)loads, (void)nloads, (void)stores, (void)nstores, (void)threads, (void)out;
    return tap_fail(err, TAP_E_UNSUPPORTED, "not supported");
}

__attribute__((weak)) void tap__pw_run(const tap__pw *program, void *const *data)
{
    (void)program, (void)data;
}

__attribute__((weak)) void tap__pw_free(tap__pw *program)
{
    (void)program;
}
