/* picklecall.h - what the globals of a pickle mean, for pickle.c. */
#ifndef TAP_FORMAT_PICKLECALL_H
#define TAP_FORMAT_PICKLECALL_H

#include "format/pickle.h"

typedef struct tap_pickle_context {
    const char *path; /* for messages */
    tap_arena *arena;
    tap_pickle_node *none;
} tap_pickle_context;

/* A new zeroed node. */
tap_status tap__pickle_node(tap_pickle_context *context, tap_pickle_kind kind, tap_pickle_node **out, tap_error *err);
/* Adds an item to a list, tuple or dict. */
tap_status tap__pickle_append(tap_pickle_context *context, tap_pickle_node *container, tap_pickle_node *item,
                              tap_error *err);

/* The node for module.name; E_UNSUPPORTED with its name when it is not in the table. */
tap_status tap__pickle_global(tap_pickle_context *context, const char *module, size_t module_len, const char *name,
                              size_t name_len, tap_pickle_node **out, tap_error *err);
tap_status tap__pickle_call(tap_pickle_context *context, const tap_pickle_node *function,
                            const tap_pickle_node *arguments, tap_pickle_node **out, tap_error *err);
/* A persistent id: ('storage', type, key, location, elements). */
tap_status tap__pickle_storage(tap_pickle_context *context, const tap_pickle_node *id, tap_pickle_node **out,
                               tap_error *err);

#endif
