/* _site.h - sites of taps inside graphs: the string that an operator carries, read once and kept. None of these needs
 * the GIL. */
#ifndef TAP_PYTHON_SITE_H
#define TAP_PYTHON_SITE_H

#include "_core.h"

typedef struct tap_graph_site tap_graph_site;

/* The site that a string describes; lives as long as the process. NULL only without memory. */
const tap_graph_site *graph_site(const char *text, size_t len);
/* How many tensors its tree has room for. */
size_t graph_site_leaves(const tap_graph_site *site);
const char *graph_site_name(const tap_graph_site *site);
const char *graph_site_text(const tap_graph_site *site); /* as the graph holds it */

/* flags: TAP_SAVE_* bits, the kind above them (<< 8). Fills *saved. */
void graph_site_save(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaves, size_t count,
                     int64_t flags, const char *device, bool recomputed, tap_saved *saved);
/* A value that could not be read: verify lists it. */
void graph_site_lose(tap_recorder *rec, const tap_graph_site *site);
/* Announces the gradients of the leaves marked "G" (of the one leaf where there is no tree). */
void graph_site_announce(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaves,
                         const tap_saved *saved);
/* How many gradients that is. */
size_t graph_site_gradients(const tap_graph_site *site);
/* No gradient is going to come any more for what was announced and did not come. */
void graph_site_gone(tap_recorder *rec, const tap_graph_site *site, int64_t step, uint32_t call);
/* Saves a gradient with the numbers of its forward. */
void graph_site_gradient(tap_recorder *rec, const tap_graph_site *site, const tap_value *leaf, int64_t step,
                         uint32_t call, const char *device);

#endif
