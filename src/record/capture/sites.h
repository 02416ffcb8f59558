/* sites.h - the names seen by one recorder. Finding a known name takes no lock and allocates nothing; the first save
 * of a name makes its site, which lives as long as the table. */
#ifndef TAP_RECORD_SITES_H
#define TAP_RECORD_SITES_H

#include "record/ring/entry.h"

#include <pthread.h>
#include <stdatomic.h>

#define TAP_KIND_COUNT 5
#define TAP_COUNTER_RECOMPUTED TAP_KIND_COUNT /* forward calls that were run again */

typedef struct tap_site {
    uint64_t hash;
    uint32_t len;
    bool wanted;                              /* by the name filter */
    _Atomic uint64_t calls[TAP_KIND_COUNT + 1]; /* step (low 32 bits) << 32 | calls in it */
    _Atomic uint64_t lost, lost_bytes;        /* not yet told by a LOST entry */
    _Atomic uint32_t lost_reason;
    atomic_bool refused;                      /* a value of it could not be read, which was said */
    char name[];
} tap_site;

typedef struct tap_site_table tap_site_table;

typedef struct tap_sites {
    _Atomic(tap_site_table *) table;
    tap_site_table *retired;                  /* replaced by larger ones; readers may still look */
    pthread_mutex_t lock;
    const char *filter;
    size_t count;
} tap_sites;

tap_status tap__site_table_init(tap_sites *sites, const char *filter, tap_error *err);
void tap__site_table_free(tap_sites *sites);
/* NULL only without memory. */
tap_site *tap__site_table_find(tap_sites *sites, const char *name);
/* The number of this call of the site in `step`, from 0. counter: a tap_kind or TAP_COUNTER_RECOMPUTED. */
uint32_t tap__site_call(tap_site *site, unsigned counter, int64_t step);
/* Calls fn for every site. */
void tap__site_table_each(tap_sites *sites, void (*fn)(void *user, tap_site *site), void *user);

#endif
