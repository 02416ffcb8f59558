/* verify_sites.h - what verify has to remember from entry to entry: names that were declared, slots without a value,
 * BIG entries without a trailer. Strings are copied; what is settled is forgotten. */
#ifndef TAP_RECORD_VERIFY_SITES_H
#define TAP_RECORD_VERIFY_SITES_H

#include "tensortap/tensortap.h"

typedef enum tap_site_kind { TAP_SITE_NAME, TAP_SITE_SLOT, TAP_SITE_BIG } tap_site_kind;

typedef struct tap_site {
    struct tap_site *next;   /* private: of the same bucket */
    tap_site_kind table;     /* private */
    uint64_t order;          /* private: of coming */
    char *name, *path;       /* path: shown form */
    int64_t step;
    uint32_t call;
    uint8_t kind;
    bool declared, ran;      /* NAME */
    bool gone;               /* SLOT */
    uint64_t seq;            /* BIG */
    uint32_t segment;        /* BIG */
    uint64_t offset, bytes;  /* BIG: of the payload */
} tap_site;

typedef struct tap_sites {
    tap_site **buckets;      /* a power of two */
    size_t size, count, slots;
    uint64_t order;
} tap_sites;

/* false: out of memory. */
bool tap__sites_declare(tap_sites *sites, const char *name);
bool tap__sites_ran(tap_sites *sites, const char *name);
bool tap__sites_slot(tap_sites *sites, const tap_site *site);
bool tap__sites_add_big(tap_sites *sites, const tap_site *site);
/* The slot's value came, or will never come. */
void tap__sites_value(tap_sites *sites, const tap_site *site);
void tap__sites_slot_gone(tap_sites *sites, const tap_site *site);
/* Takes a BIG entry out by its seq, or NULL; tap__site_free. */
tap_site *tap__sites_take_big(tap_sites *sites, uint64_t seq);
void tap__site_free(tap_site *site);

/* Declared and never ran, slots and BIG entries that are left, in the order they came. */
typedef void (*tap_site_fn)(void *user, const tap_site *site, tap_site_kind kind);
bool tap__sites_each_open(const tap_sites *sites, tap_site_fn each, void *user);
void tap__sites_free(tap_sites *sites);

#endif
