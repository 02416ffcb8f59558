/* sites.c - an open-addressing table of names: lock-free to read, locked to grow. */
#include "record/capture/sites.h"

#include "base/match.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

struct tap_site_table {
    size_t mask;
    tap_site_table *older;
    _Atomic(tap_site *) slots[];
};

static tap_site_table *table_new(size_t size)
{
    tap_site_table *table = tap__calloc(1, sizeof *table + size * sizeof table->slots[0]);
    if (table)
        table->mask = size - 1;
    return table;
}

tap_status tap__site_table_init(tap_sites *sites, const char *filter, tap_error *err)
{
    tap_site_table *table = table_new(256);
    if (!table)
        return tap_fail_nomem(err);
    atomic_init(&sites->table, table);
    sites->retired = NULL;
    sites->filter = filter;
    sites->count = 0;
    pthread_mutex_init(&sites->lock, NULL);
    return TAP_OK;
}

void tap__site_table_free(tap_sites *sites)
{
    tap_site_table *table = atomic_load(&sites->table);
    if (!table)
        return;
    for (size_t i = 0; i <= table->mask; i++)
        tap__free(atomic_load(&table->slots[i]));
    tap__free(table);
    while ((table = sites->retired)) {
        sites->retired = table->older;
        tap__free(table);
    }
    atomic_store(&sites->table, NULL);
    pthread_mutex_destroy(&sites->lock);
}

static tap_site *table_find(tap_site_table *table, uint64_t hash, const char *name, size_t len, size_t *free_slot)
{
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        tap_site *site = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (!site) {
            *free_slot = i;
            return NULL;
        }
        if (site->hash == hash && site->len == len && memcmp(site->name, name, len) == 0)
            return site;
    }
}

static tap_site_table *table_grow(tap_sites *sites, tap_site_table *old)
{
    tap_site_table *table = table_new((old->mask + 1) * 2);
    if (!table)
        return NULL;
    for (size_t i = 0; i <= old->mask; i++) {
        tap_site *site = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        size_t slot;
        if (site && !table_find(table, site->hash, site->name, site->len, &slot))
            atomic_store_explicit(&table->slots[slot], site, memory_order_relaxed);
    }
    old->older = sites->retired;
    sites->retired = old;
    atomic_store_explicit(&sites->table, table, memory_order_release);
    return table;
}

static tap_site *site_add(tap_sites *sites, uint64_t hash, const char *name, size_t len)
{
    pthread_mutex_lock(&sites->lock);
    tap_site_table *table = atomic_load_explicit(&sites->table, memory_order_relaxed);
    size_t slot;
    tap_site *site = table_find(table, hash, name, len, &slot);
    if (!site && (sites->count + 1) * 2 > table->mask) {
        table = table_grow(sites, table);
        if (table)
            table_find(table, hash, name, len, &slot);
    }
    if (!site && table && (site = tap__calloc(1, sizeof *site + len + 1))) {
        site->hash = hash;
        site->len = (uint32_t)len;
        memcpy(site->name, name, len);
        site->wanted = tap__names_match(sites->filter, site->name);
        atomic_store_explicit(&table->slots[slot], site, memory_order_release);
        sites->count++;
    }
    pthread_mutex_unlock(&sites->lock);
    return site;
}

tap_site *tap__site_table_find(tap_sites *sites, const char *name)
{
    size_t len = strlen(name), slot;
    uint64_t hash = tap_hash_bytes(name, len);
    tap_site *site = table_find(atomic_load_explicit(&sites->table, memory_order_acquire), hash, name, len, &slot);
    return site ? site : site_add(sites, hash, name, len);
}

uint32_t tap__site_call(tap_site *site, unsigned counter, int64_t step)
{
    _Atomic uint64_t *word = &site->calls[counter % (TAP_KIND_COUNT + 1)];
    uint64_t tag = ((uint64_t)step + 1) << 32, seen = atomic_load_explicit(word, memory_order_relaxed), next;
    do
        next = (seen & ~0xFFFFFFFFull) == tag ? seen + 1 : tag | 1;
    while (!atomic_compare_exchange_weak_explicit(word, &seen, next, memory_order_relaxed, memory_order_relaxed));
    return (uint32_t)next - 1;
}

void tap__site_table_each(tap_sites *sites, void (*fn)(void *user, tap_site *site), void *user)
{
    pthread_mutex_lock(&sites->lock);
    tap_site_table *table = atomic_load_explicit(&sites->table, memory_order_relaxed);
    for (size_t i = 0; i <= table->mask; i++) {
        tap_site *site = atomic_load_explicit(&table->slots[i], memory_order_relaxed);
        if (site)
            fn(user, site);
    }
    pthread_mutex_unlock(&sites->lock);
}
