/* verify_ledger.h - what verify has to remember from entry to entry: names that were declared, slots without a value,
 * BIG entries without a trailer. Strings are copied; what is settled is forgotten. */
#ifndef TAP_RECORD_VERIFY_LEDGER_H
#define TAP_RECORD_VERIFY_LEDGER_H

#include "tensortap/tensortap.h"

typedef enum tap_ledger_table { TAP_LEDGER_NAME, TAP_LEDGER_SLOT, TAP_LEDGER_BIG } tap_ledger_table;

typedef struct tap_ledger_item {
    struct tap_ledger_item *next;   /* private: of the same bucket */
    tap_ledger_table table;     /* private */
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
} tap_ledger_item;

typedef struct tap_ledger {
    tap_ledger_item **buckets;      /* a power of two */
    size_t size, count, slots;
    uint64_t order;
} tap_ledger;

/* false: out of memory. */
bool tap__ledger_declare(tap_ledger *ledger, const char *name);
bool tap__ledger_ran(tap_ledger *ledger, const char *name);
bool tap__ledger_slot(tap_ledger *ledger, const tap_ledger_item *item);
bool tap__ledger_add_big(tap_ledger *ledger, const tap_ledger_item *item);
/* The slot's value came, or will never come. */
void tap__ledger_value(tap_ledger *ledger, const tap_ledger_item *item);
void tap__ledger_slot_gone(tap_ledger *ledger, const tap_ledger_item *item);
/* Takes a BIG entry out by its seq, or NULL; tap__ledger_item_free. */
tap_ledger_item *tap__ledger_take_big(tap_ledger *ledger, uint64_t seq);
void tap__ledger_item_free(tap_ledger_item *item);

/* Declared and never ran, slots and BIG entries that are left, in the order they came. */
typedef void (*tap_ledger_fn)(void *user, const tap_ledger_item *item, tap_ledger_table kind);
bool tap__ledger_each_open(const tap_ledger *ledger, tap_ledger_fn each, void *user);
void tap__ledger_free(tap_ledger *ledger);

#endif
