/* sym.c - the pool of symbolic integers. Arithmetic that overflows, or divides by zero, is not known. */
#include "graph/sym.h"

#include "base/memory.h"

#include <string.h>

void tap__syms_free(tap__syms *syms)
{
    for (int32_t i = 0; i < syms->nsymbols; i++)
        tap__free(syms->names[i]);
    tap__free(syms->names);
    tap__free(syms->nodes);
    tap__free(syms->buckets);
    memset(syms, 0, sizeof *syms);
}

static uint32_t hash_node(const tap__sym_node *node)
{
    uint64_t h = (uint64_t)node->value * 0x9E3779B97F4A7C15u;
    h ^= ((uint64_t)(uint32_t)node->a << 32 | (uint32_t)node->b) * 0xC2B2AE3D27D4EB4Fu;
    h ^= (uint64_t)node->kind * 0x165667B19E3779F9u;
    return (uint32_t)(h >> 32 ^ h);
}

static bool same_node(const tap__sym_node *a, const tap__sym_node *b)
{
    return a->kind == b->kind && a->a == b->a && a->b == b->b && a->value == b->value;
}

static void insert(tap__syms *syms, int32_t index)
{
    uint32_t mask = (uint32_t)syms->nbuckets - 1, at = hash_node(&syms->nodes[index]) & mask;
    while (syms->buckets[at] >= 0)
        at = (at + 1) & mask;
    syms->buckets[at] = index;
}

static bool grow(tap__syms *syms)
{
    int32_t room = syms->room ? syms->room * 2 : 64;
    tap__sym_node *nodes = tap__resize(syms->nodes, (size_t)room, sizeof *nodes);
    if (!nodes)
        return false;
    syms->nodes = nodes;
    int32_t *buckets = tap__alloc((size_t)room * 2 * sizeof *buckets);
    if (!buckets)
        return false;
    tap__free(syms->buckets);
    syms->buckets = buckets;
    syms->nbuckets = room * 2;
    syms->room = room;
    memset(buckets, 0xFF, (size_t)syms->nbuckets * sizeof *buckets);
    for (int32_t i = 0; i < syms->count; i++)
        insert(syms, i);
    return true;
}

static tap_sym intern(tap__syms *syms, tap__sym_node node)
{
    if (syms->nbuckets) {
        uint32_t mask = (uint32_t)syms->nbuckets - 1, at = hash_node(&node) & mask;
        for (; syms->buckets[at] >= 0; at = (at + 1) & mask)
            if (same_node(&syms->nodes[syms->buckets[at]], &node))
                return syms->buckets[at];
    }
    if (syms->count == syms->room && !grow(syms))
        return -1;
    syms->nodes[syms->count] = node;
    insert(syms, syms->count);
    return syms->count++;
}

tap_sym tap__sym_const(tap__syms *syms, int64_t value)
{
    return intern(syms, (tap__sym_node){.kind = TAP_SYM_CONST, .value = value});
}

tap_sym tap__sym_symbol(tap__syms *syms, const char *name)
{
    int32_t number = 0;
    while (number < syms->nsymbols && strcmp(syms->names[number], name) != 0)
        number++;
    if (number == syms->nsymbols) {
        char **names = tap__resize(syms->names, (size_t)number + 1, sizeof *names), *copy = tap__strdup(name);
        if (names)
            syms->names = names;
        if (!names || !copy) {
            tap__free(copy);
            return -1;
        }
        names[syms->nsymbols++] = copy;
    }
    return intern(syms, (tap__sym_node){.kind = TAP_SYM_SYMBOL, .a = number});
}

int32_t tap__sym_is_symbol(const tap__syms *syms, tap_sym sym)
{
    return sym >= 0 && sym < syms->count && syms->nodes[sym].kind == TAP_SYM_SYMBOL ? syms->nodes[sym].a : -1;
}

static bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *quotient -= 1;
        *rest += b;
    }
    return true;
}

static bool power(int64_t base, int64_t exponent, int64_t *out)
{
    if (exponent < 0)
        return false;
    if (base >= -1 && base <= 1) { /* else 63 steps overflow */
        *out = exponent == 0 ? 1 : base < 0 && exponent % 2 == 0 ? 1 : base;
        return true;
    }
    for (*out = 1; exponent > 0; exponent--)
        if (__builtin_mul_overflow(*out, base, out))
            return false;
    return true;
}

static bool apply(int kind, int64_t a, int64_t b, int64_t *out)
{
    int64_t other;
    switch (kind) {
    case TAP_SYM_ADD: return !__builtin_add_overflow(a, b, out);
    case TAP_SYM_SUB: return !__builtin_sub_overflow(a, b, out);
    case TAP_SYM_MUL: return !__builtin_mul_overflow(a, b, out);
    case TAP_SYM_FLOORDIV: return floor_divide(a, b, out, &other);
    case TAP_SYM_MOD: return floor_divide(a, b, &other, out);
    case TAP_SYM_POW: return power(a, b, out);
    case TAP_SYM_MAX: *out = a > b ? a : b; return true;
    case TAP_SYM_MIN: *out = a < b ? a : b; return true;
    default: return false;
    }
}

tap_sym tap__sym_expr(tap__syms *syms, tap_sym_op op, tap_sym a, tap_sym b)
{
    if (a < 0 || b < 0 || a >= syms->count || b >= syms->count || (unsigned)op > TAP_SYM_MIN)
        return -1;
    const tap__sym_node *x = &syms->nodes[a], *y = &syms->nodes[b];
    int64_t value;
    if (x->kind == TAP_SYM_CONST && y->kind == TAP_SYM_CONST && apply((int)op, x->value, y->value, &value))
        return tap__sym_const(syms, value);
    return intern(syms, (tap__sym_node){.kind = (int8_t)op, .a = a, .b = b});
}

void tap__syms_eval(const tap__syms *syms, const int64_t *symbols, const bool *known, int64_t *values, bool *have)
{
    for (int32_t i = 0; i < syms->count; i++) {
        const tap__sym_node *node = &syms->nodes[i];
        if (node->kind == TAP_SYM_CONST) {
            values[i] = node->value;
            have[i] = true;
        } else if (node->kind == TAP_SYM_SYMBOL) {
            values[i] = symbols[node->a];
            have[i] = known[node->a];
        } else {
            have[i] = have[node->a] && have[node->b] &&
                      apply(node->kind, values[node->a], values[node->b], &values[i]);
        }
    }
}

void tap__syms_reach(const tap__syms *syms, const bool *known, bool *have)
{
    for (int32_t i = 0; i < syms->count; i++) {
        const tap__sym_node *node = &syms->nodes[i];
        have[i] = node->kind == TAP_SYM_CONST   ? true
                  : node->kind == TAP_SYM_SYMBOL ? known[node->a]
                                                 : have[node->a] && have[node->b];
    }
}
