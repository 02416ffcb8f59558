/* py_site.h - sites of taps inside graphs: the string that an operator carries, read once and kept. None of these needs
 * the GIL. */
#ifndef TAP_PYTHON_SITE_H
#define TAP_PYTHON_SITE_H

#include "py_core.h"

typedef struct tap_graph_site tap_graph_site;

/* The site that a string describes; lives as long as the process. NULL only without memory. */
const tap_graph_site *graph_site(const char *text, size_t len);
/* How many tensors its tree has room for. */
size_t graph_site_leaves(const tap_graph_site *site);
const char *graph_site_name(const tap_graph_site *site);
const char *graph_site_text(const tap_graph_site *site); /* as the graph holds it */
/* Where a value is printed to; NULL: stdout. */
const char *graph_site_print_file(const tap_graph_site *site);

/* What a save gives its gradients and its other leaves: a mark, the recorder's serial, step and call. A serial of 0: the
 * value was not wanted. */
enum { TICKET = 4 };
#define WANTS_TICKET (1LL << 32) /* flag of torch_op: it gives the numbers of a ticket */
#define TICKET_MAGIC 0x7461705F7469636Bll

/* Saves the tensors of a site. flags: TAP_SAVE_* bits, the kind above them (<< 8). numbers: NULL, or room for a ticket,
 * which announces the gradients of the leaves marked "G" (of the one leaf where there is no tree). */
void graph_site_run(const tap_graph_site *site, const tap_value *values, size_t count, int64_t flags,
                    const char *device, int64_t *numbers);
/* Saves a gradient with the numbers of its forward; those of a recorder that is closed by now save nothing. */
void graph_site_run_gradient(const tap_graph_site *site, const tap_value *value, const int64_t *numbers,
                             const char *device);
/* Saves one leaf of a site that carries its flags itself. given: NULL, or the ticket of the value it belongs to. Fills
 * numbers and announces the gradient only where the site says so. */
void graph_site_run_leaf(const tap_graph_site *site, const tap_value *value, const int64_t *given, int64_t *numbers);
/* A value that could not be read: verify lists it. */
void graph_site_lose(const tap_graph_site *site, const char *why);
/* How many gradients a save of the site announces. */
size_t graph_site_gradients(const tap_graph_site *site);
/* No gradient is going to come any more for what was announced and did not come. */
void graph_site_gone(tap_recorder *rec, const tap_graph_site *site, int64_t step, uint32_t call);

#endif
