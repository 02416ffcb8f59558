/* dnn_primitive.h - one primitive of oneDNN and the layouts it wants, shared between jobs; for onednn.c and dnn_job.c. */
#ifndef TAP_ENGINE_DNN_PRIMITIVE_H
#define TAP_ENGINE_DNN_PRIMITIVE_H

#include "engine/onednn.h"

enum { TAP_DNN_ARG_SCRATCHPAD = 80 };

typedef struct tap__dnn_primitive {
    tap__dnn_desc desc;
    tap__dnn_plan plan;
    tap__dnn_code code;
    tap__dnn_layout layout[TAP_DNN_ROLES]; /* belong to plan; NULL: no such tensor. BRING, FETCH: SRC and DST only */
    tap__dnn_layout scratch;               /* belongs to plan */
    size_t scratch_bytes;
    int users;                             /* jobs that hold it */
    bool kept;                             /* in the cache */
    uint64_t used;                         /* when it was last asked for */
} tap__dnn_primitive;

/* Which argument of the execution a role is for a kind, and whether it is written; 0: the kind has no such tensor. */
int tap__dnn_role_arg(tap__dnn_kind kind, int role);
bool tap__dnn_role_is_result(tap__dnn_kind kind, int role);

/* The layout of a tensor; the caller destroys it. False: oneDNN refuses it (elements that overlap). */
bool tap__dnn_layout_make(const tap__dnn_tensor *tensor, tap__dnn_layout *out);

/* From the cache, or made. wants: BRING and FETCH only: the layout on the primitive's side. */
tap_status tap__dnn_primitive_get(const tap__dnn_desc *desc, tap__dnn_layout wants, tap__dnn_primitive **out,
                                  tap_error *err);
void tap__dnn_primitive_put(tap__dnn_primitive *primitive);

#endif
