/* verify_ledger.c - the chained hash table behind verify_ledger.h. */
#include "record/read/verify_ledger.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static uint64_t site_hash(const tap_ledger_item *item)
{
    if (item->table == TAP_LEDGER_BIG)
        return tap_hash_bytes(&item->seq, sizeof item->seq);
    uint64_t hash = tap_hash_bytes(item->name, strlen(item->name));
    if (item->table == TAP_LEDGER_NAME)
        return hash;
    uint64_t rest[4] = {hash, (uint64_t)item->step, item->call, tap_hash_bytes(item->path, strlen(item->path))};
    return tap_hash_bytes(rest, sizeof rest) + item->kind;
}

static bool site_equal(const tap_ledger_item *a, const tap_ledger_item *b)
{
    if (a->table != b->table)
        return false;
    if (a->table == TAP_LEDGER_BIG)
        return a->seq == b->seq;
    if (strcmp(a->name, b->name) != 0)
        return false;
    return a->table == TAP_LEDGER_NAME || (a->step == b->step && a->call == b->call && a->kind == b->kind &&
                                         strcmp(a->path, b->path) == 0);
}

/* The link that points at the item, or NULL. */
static tap_ledger_item **find(const tap_ledger *ledger, const tap_ledger_item *key)
{
    if (!ledger->size)
        return NULL;
    for (tap_ledger_item **at = &ledger->buckets[site_hash(key) & (ledger->size - 1)]; *at; at = &(*at)->next)
        if (site_equal(*at, key))
            return at;
    return NULL;
}

static bool grow(tap_ledger *ledger)
{
    size_t size = ledger->size ? 2 * ledger->size : 256;
    tap_ledger_item **buckets = tap__calloc(size, sizeof *buckets);
    if (!buckets)
        return false;
    for (size_t i = 0; i < ledger->size; i++) {
        for (tap_ledger_item *item = ledger->buckets[i], *next; item; item = next) {
            next = item->next;
            tap_ledger_item **bucket = &buckets[site_hash(item) & (size - 1)];
            item->next = *bucket;
            *bucket = item;
        }
    }
    tap__free(ledger->buckets);
    ledger->buckets = buckets;
    ledger->size = size;
    return true;
}

void tap__ledger_item_free(tap_ledger_item *item)
{
    tap__free(item->name);
    tap__free(item->path);
    tap__free(item);
}

/* The item like key, added when it is new; NULL without memory. */
static tap_ledger_item *ensure(tap_ledger *ledger, const tap_ledger_item *key)
{
    tap_ledger_item **found = find(ledger, key);
    if (found)
        return *found;
    if (ledger->count >= ledger->size && !grow(ledger))
        return NULL;
    tap_ledger_item *item = tap__alloc(sizeof *item);
    if (!item)
        return NULL;
    *item = *key;
    item->name = tap__strdup(key->name);
    item->path = tap__strdup(key->path ? key->path : "");
    if (!item->name || !item->path) {
        tap__ledger_item_free(item);
        return NULL;
    }
    tap_ledger_item **bucket = &ledger->buckets[site_hash(item) & (ledger->size - 1)];
    item->next = *bucket;
    *bucket = item;
    item->order = ledger->order++;
    ledger->count++;
    return item;
}

static tap_ledger_item *name_ensure(tap_ledger *ledger, const char *name)
{
    return ensure(ledger, &(tap_ledger_item){.table = TAP_LEDGER_NAME, .name = (char *)name});
}

bool tap__ledger_declare(tap_ledger *ledger, const char *name)
{
    tap_ledger_item *item = name_ensure(ledger, name);
    if (item)
        item->declared = true;
    return item != NULL;
}

bool tap__ledger_ran(tap_ledger *ledger, const char *name)
{
    tap_ledger_item *item = name_ensure(ledger, name);
    if (item)
        item->ran = true;
    return item != NULL;
}

static tap_ledger_item as_table(const tap_ledger_item *item, tap_ledger_table table)
{
    tap_ledger_item copy = *item;
    copy.table = table;
    return copy;
}

bool tap__ledger_slot(tap_ledger *ledger, const tap_ledger_item *item)
{
    tap_ledger_item key = as_table(item, TAP_LEDGER_SLOT);
    ledger->slots++;
    return ensure(ledger, &key) != NULL;
}

bool tap__ledger_add_big(tap_ledger *ledger, const tap_ledger_item *item)
{
    tap_ledger_item key = as_table(item, TAP_LEDGER_BIG);
    return ensure(ledger, &key) != NULL;
}

static tap_ledger_item *take_out(tap_ledger *ledger, tap_ledger_item **link)
{
    tap_ledger_item *item = *link;
    *link = item->next;
    ledger->count--;
    return item;
}

void tap__ledger_value(tap_ledger *ledger, const tap_ledger_item *item)
{
    if (!ledger->slots)
        return;
    tap_ledger_item key = as_table(item, TAP_LEDGER_SLOT), **found = find(ledger, &key);
    if (found)
        tap__ledger_item_free(take_out(ledger, found));
}

void tap__ledger_slot_gone(tap_ledger *ledger, const tap_ledger_item *item)
{
    tap_ledger_item key = as_table(item, TAP_LEDGER_SLOT), **found = find(ledger, &key);
    if (found)
        (*found)->gone = true;
}

tap_ledger_item *tap__ledger_take_big(tap_ledger *ledger, uint64_t seq)
{
    tap_ledger_item **found = find(ledger, &(tap_ledger_item){.table = TAP_LEDGER_BIG, .seq = seq});
    return found ? take_out(ledger, found) : NULL;
}

static int compare_order(const void *a, const void *b)
{
    uint64_t x = (*(const tap_ledger_item *const *)a)->order, y = (*(const tap_ledger_item *const *)b)->order;
    return x < y ? -1 : x > y;
}

static bool is_open(const tap_ledger_item *item)
{
    return item->table != TAP_LEDGER_NAME || (item->declared && !item->ran);
}

bool tap__ledger_each_open(const tap_ledger *ledger, tap_ledger_fn each, void *user)
{
    const tap_ledger_item **open = tap__calloc(ledger->count + 1, sizeof *open);
    if (!open)
        return false;
    size_t count = 0;
    for (size_t i = 0; i < ledger->size; i++)
        for (const tap_ledger_item *item = ledger->buckets[i]; item; item = item->next)
            if (is_open(item))
                open[count++] = item;
    if (count)
        qsort(open, count, sizeof *open, compare_order);
    for (size_t i = 0; i < count; i++)
        each(user, open[i], open[i]->table);
    tap__free(open);
    return true;
}

void tap__ledger_free(tap_ledger *ledger)
{
    for (size_t i = 0; i < ledger->size; i++)
        for (tap_ledger_item *item = ledger->buckets[i], *next; item; item = next) {
            next = item->next;
            tap__ledger_item_free(item);
        }
    tap__free(ledger->buckets);
    *ledger = (tap_ledger){0};
}
