/* verify_sites.c - the chained hash table behind verify_sites.h. */
#include "record/verify_sites.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static uint64_t site_hash(const tap_site *site)
{
    if (site->table == TAP_SITE_BIG)
        return tap_hash_bytes(&site->seq, sizeof site->seq);
    uint64_t hash = tap_hash_bytes(site->name, strlen(site->name));
    if (site->table == TAP_SITE_NAME)
        return hash;
    uint64_t rest[4] = {hash, (uint64_t)site->step, site->call, tap_hash_bytes(site->path, strlen(site->path))};
    return tap_hash_bytes(rest, sizeof rest) + site->kind;
}

static bool site_equal(const tap_site *a, const tap_site *b)
{
    if (a->table != b->table)
        return false;
    if (a->table == TAP_SITE_BIG)
        return a->seq == b->seq;
    if (strcmp(a->name, b->name) != 0)
        return false;
    return a->table == TAP_SITE_NAME || (a->step == b->step && a->call == b->call && a->kind == b->kind &&
                                         strcmp(a->path, b->path) == 0);
}

/* The link that points at the site, or NULL. */
static tap_site **find(const tap_sites *sites, const tap_site *key)
{
    if (!sites->size)
        return NULL;
    for (tap_site **at = &sites->buckets[site_hash(key) & (sites->size - 1)]; *at; at = &(*at)->next)
        if (site_equal(*at, key))
            return at;
    return NULL;
}

static bool grow(tap_sites *sites)
{
    size_t size = sites->size ? 2 * sites->size : 256;
    tap_site **buckets = tap__calloc(size, sizeof *buckets);
    if (!buckets)
        return false;
    for (size_t i = 0; i < sites->size; i++) {
        for (tap_site *site = sites->buckets[i], *next; site; site = next) {
            next = site->next;
            tap_site **bucket = &buckets[site_hash(site) & (size - 1)];
            site->next = *bucket;
            *bucket = site;
        }
    }
    tap__free(sites->buckets);
    sites->buckets = buckets;
    sites->size = size;
    return true;
}

void tap__site_free(tap_site *site)
{
    tap__free(site->name);
    tap__free(site->path);
    tap__free(site);
}

/* The site like key, added when it is new; NULL without memory. */
static tap_site *ensure(tap_sites *sites, const tap_site *key)
{
    tap_site **found = find(sites, key);
    if (found)
        return *found;
    if (sites->count >= sites->size && !grow(sites))
        return NULL;
    tap_site *site = tap__alloc(sizeof *site);
    if (!site)
        return NULL;
    *site = *key;
    site->name = tap__strdup(key->name);
    site->path = tap__strdup(key->path ? key->path : "");
    if (!site->name || !site->path) {
        tap__site_free(site);
        return NULL;
    }
    tap_site **bucket = &sites->buckets[site_hash(site) & (sites->size - 1)];
    site->next = *bucket;
    *bucket = site;
    site->order = sites->order++;
    sites->count++;
    return site;
}

static tap_site *name_ensure(tap_sites *sites, const char *name)
{
    return ensure(sites, &(tap_site){.table = TAP_SITE_NAME, .name = (char *)name});
}

bool tap__sites_declare(tap_sites *sites, const char *name)
{
    tap_site *site = name_ensure(sites, name);
    if (site)
        site->declared = true;
    return site != NULL;
}

bool tap__sites_ran(tap_sites *sites, const char *name)
{
    tap_site *site = name_ensure(sites, name);
    if (site)
        site->ran = true;
    return site != NULL;
}

static tap_site as_table(const tap_site *site, tap_site_kind table)
{
    tap_site copy = *site;
    copy.table = table;
    return copy;
}

bool tap__sites_slot(tap_sites *sites, const tap_site *site)
{
    tap_site key = as_table(site, TAP_SITE_SLOT);
    sites->slots++;
    return ensure(sites, &key) != NULL;
}

bool tap__sites_add_big(tap_sites *sites, const tap_site *site)
{
    tap_site key = as_table(site, TAP_SITE_BIG);
    return ensure(sites, &key) != NULL;
}

static tap_site *take_out(tap_sites *sites, tap_site **link)
{
    tap_site *site = *link;
    *link = site->next;
    sites->count--;
    return site;
}

void tap__sites_value(tap_sites *sites, const tap_site *site)
{
    if (!sites->slots)
        return;
    tap_site key = as_table(site, TAP_SITE_SLOT), **found = find(sites, &key);
    if (found)
        tap__site_free(take_out(sites, found));
}

void tap__sites_slot_gone(tap_sites *sites, const tap_site *site)
{
    tap_site key = as_table(site, TAP_SITE_SLOT), **found = find(sites, &key);
    if (found)
        (*found)->gone = true;
}

tap_site *tap__sites_take_big(tap_sites *sites, uint64_t seq)
{
    tap_site **found = find(sites, &(tap_site){.table = TAP_SITE_BIG, .seq = seq});
    return found ? take_out(sites, found) : NULL;
}

static int compare_order(const void *a, const void *b)
{
    uint64_t x = (*(const tap_site *const *)a)->order, y = (*(const tap_site *const *)b)->order;
    return x < y ? -1 : x > y;
}

static bool is_open(const tap_site *site)
{
    return site->table != TAP_SITE_NAME || (site->declared && !site->ran);
}

bool tap__sites_each_open(const tap_sites *sites, tap_site_fn each, void *user)
{
    const tap_site **open = tap__calloc(sites->count + 1, sizeof *open);
    if (!open)
        return false;
    size_t count = 0;
    for (size_t i = 0; i < sites->size; i++)
        for (const tap_site *site = sites->buckets[i]; site; site = site->next)
            if (is_open(site))
                open[count++] = site;
    if (count)
        qsort(open, count, sizeof *open, compare_order);
    for (size_t i = 0; i < count; i++)
        each(user, open[i], open[i]->table);
    tap__free(open);
    return true;
}

void tap__sites_free(tap_sites *sites)
{
    for (size_t i = 0; i < sites->size; i++)
        for (tap_site *site = sites->buckets[i], *next; site; site = next) {
            next = site->next;
            tap__site_free(site);
        }
    tap__free(sites->buckets);
    *sites = (tap_sites){0};
}
