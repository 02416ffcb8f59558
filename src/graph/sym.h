/* sym.h - integers that are known when the graph runs: constants, symbols and expressions over them, each kept once, in
 * the order they were made, so that one pass from the front evaluates all. */
#ifndef TAP_GRAPH_SYM_H
#define TAP_GRAPH_SYM_H

#include "tensortap/tensortap_engine.h"

typedef struct tap__sym_node {
    int8_t kind;    /* SYM_CONST, SYM_SYMBOL, or a tap_sym_op */
    tap_sym a, b;   /* operands; of a symbol: its number */
    int64_t value;  /* of a constant */
} tap__sym_node;

enum { TAP_SYM_CONST = 100, TAP_SYM_SYMBOL = 101 };

typedef struct tap__syms {
    tap__sym_node *nodes;
    int32_t count, room;
    int32_t *buckets; /* hash table of indices, -1: empty */
    int32_t nbuckets;
    char **names;     /* of the symbols */
    int32_t nsymbols;
} tap__syms;

void tap__syms_free(tap__syms *syms);
tap_sym tap__sym_const(tap__syms *syms, int64_t value);
tap_sym tap__sym_symbol(tap__syms *syms, const char *name);
tap_sym tap__sym_expr(tap__syms *syms, tap_sym_op op, tap_sym a, tap_sym b);
/* The number of the symbol when the expression is nothing but it, else -1. */
int32_t tap__sym_is_symbol(const tap__syms *syms, tap_sym sym);
/* symbols[i], where known[i], gives every expression that follows from them: values and, where not, have[e] false. */
void tap__syms_eval(const tap__syms *syms, const int64_t *symbols, const bool *known, int64_t *values, bool *have);

/* Which expressions follow from the symbols known. */
void tap__syms_reach(const tap__syms *syms, const bool *known, bool *have);

#endif
