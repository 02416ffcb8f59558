/* pickle.c - the machine that reads a pickle: a stack, a memo and one function for each opcode. What a global means
 * when it is called is in picklecall.c. */
#include "format/pickle.h"

#include "base/status.h"
#include "format/picklecall.h"

#include <string.h>

typedef struct machine {
    tap_pickle_context context;
    const uint8_t *at, *end;
    tap_pickle_node **stack;
    size_t depth, room;
    tap_pickle_node **memo; /* NULL where nothing was put */
    size_t memo_room, memo_count, memo_max;
    bool stopped;
} machine;

typedef tap_status (*op_fn)(machine *m, tap_error *err);

/* Never written to. */
static tap_pickle_node NONE_NODE = {.kind = TAP_PICKLE_NONE}, FALSE_NODE = {.kind = TAP_PICKLE_BOOL},
                       TRUE_NODE = {.kind = TAP_PICKLE_BOOL, .integer = 1}, EMPTY_NODE = {.kind = TAP_PICKLE_TUPLE},
                       MARK_NODE = {.kind = TAP_PICKLE_MARK};

static tap_status damaged(const machine *m, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_E_FORMAT, "%s: the pickle is damaged: %s; write the file again", m->context.path, what);
}

static tap_status take_bytes(machine *m, uint64_t len, const uint8_t **out, tap_error *err)
{
    *out = m->at;
    if (len > (uint64_t)(m->end - m->at))
        return tap_fail(err, TAP_E_TRUNCATED, "%s: truncated: the pickle ends inside a value; the writer was killed, "
                        "run: tensortap verify DIR", m->context.path);
    m->at += len;
    return TAP_OK;
}

static tap_status take_number(machine *m, int bytes, uint64_t *out, tap_error *err)
{
    const uint8_t *at;
    *out = 0;
    TAP_TRY(take_bytes(m, (uint64_t)bytes, &at, err));
    for (int i = 0; i < bytes; i++)
        *out |= (uint64_t)at[i] << 8 * i;
    return TAP_OK;
}

/* Room for one more in an array of the arena that doubles. */
static tap_status grow(machine *m, tap_pickle_node ***array, size_t used, size_t *room, size_t need, tap_error *err)
{
    if (need <= *room)
        return TAP_OK;
    size_t wanted = *room ? *room : 64;
    while (wanted < need)
        wanted *= 2;
    tap_pickle_node **grown = tap__arena_alloc(m->context.arena, wanted * sizeof *grown);
    if (!grown)
        return tap__arena_fail(m->context.arena, wanted * sizeof *grown, m->context.path, err);
    if (used)
        memcpy(grown, *array, used * sizeof *grown);
    *array = grown;
    *room = wanted;
    return TAP_OK;
}

static tap_status push(machine *m, tap_pickle_node *node, tap_error *err)
{
    TAP_TRY(grow(m, &m->stack, m->depth, &m->room, m->depth + 1, err));
    m->stack[m->depth++] = node;
    return TAP_OK;
}

static tap_status push_new(machine *m, tap_pickle_kind kind, tap_pickle_node **out, tap_error *err)
{
    TAP_TRY(tap__pickle_node(&m->context, kind, out, err));
    return push(m, *out, err);
}

static tap_status pop(machine *m, tap_pickle_node **out, tap_error *err)
{
    *out = &NONE_NODE;
    if (m->depth == 0 || m->stack[m->depth - 1] == &MARK_NODE)
        return damaged(m, "it takes a value that is not there", err);
    *out = m->stack[--m->depth];
    return TAP_OK;
}

/* Index of the first value after the last mark. The values stay where they are. */
static tap_status find_mark(machine *m, size_t *first, tap_error *err)
{
    *first = m->depth;
    for (; *first > 0; --*first)
        if (m->stack[*first - 1] == &MARK_NODE)
            return TAP_OK;
    return damaged(m, "it takes a mark that is not there", err);
}

static tap_status push_text(machine *m, uint64_t len, tap_error *err)
{
    const uint8_t *text;
    tap_pickle_node *node;
    TAP_TRY(take_bytes(m, len, &text, err));
    TAP_TRY(push_new(m, TAP_PICKLE_STR, &node, err));
    node->text = (const char *)text;
    node->len = len;
    return TAP_OK;
}

static tap_status push_int(machine *m, int64_t integer, tap_error *err)
{
    tap_pickle_node *node;
    TAP_TRY(push_new(m, TAP_PICKLE_INT, &node, err));
    node->integer = integer;
    return TAP_OK;
}

/* Little-endian two's complement of any length. */
static tap_status push_long(machine *m, uint64_t len, tap_error *err)
{
    const uint8_t *at;
    TAP_TRY(take_bytes(m, len, &at, err));
    bool negative = len && at[len - 1] & 0x80;
    if (len <= 8) {
        uint64_t value = negative && len < 8 ? UINT64_MAX << 8 * len : 0;
        for (uint64_t i = 0; i < len; i++)
            value |= (uint64_t)at[i] << 8 * i;
        return push_int(m, (int64_t)value, err);
    }
    tap_pickle_node *node;
    TAP_TRY(push_new(m, TAP_PICKLE_FLOAT, &node, err));
    double number = 0;
    for (uint64_t i = len; i > 0; i--)
        number = number * 256 + (negative ? 255 - at[i - 1] : at[i - 1]);
    node->number = negative ? -number - 1 : number;
    return TAP_OK;
}

static tap_status op_proto(machine *m, tap_error *err)
{
    uint64_t version;
    TAP_TRY(take_number(m, 1, &version, err));
    return version <= 5 ? TAP_OK : damaged(m, "its protocol is newer than 5", err);
}

static tap_status op_frame(machine *m, tap_error *err)
{
    uint64_t ignored;
    return take_number(m, 8, &ignored, err);
}

static tap_status op_stop(machine *m, tap_error *err)
{
    (void)err;
    m->stopped = true;
    return TAP_OK;
}

static tap_status op_mark(machine *m, tap_error *err)
{
    return push(m, &MARK_NODE, err);
}

static tap_status op_pop(machine *m, tap_error *err)
{
    if (m->depth == 0)
        return damaged(m, "it takes a value that is not there", err);
    m->depth--;
    return TAP_OK;
}

static tap_status op_pop_mark(machine *m, tap_error *err)
{
    size_t first;
    TAP_TRY(find_mark(m, &first, err));
    m->depth = first - 1;
    return TAP_OK;
}

static tap_status op_none(machine *m, tap_error *err)
{
    return push(m, &NONE_NODE, err);
}

static tap_status op_true(machine *m, tap_error *err)
{
    return push(m, &TRUE_NODE, err);
}

static tap_status op_false(machine *m, tap_error *err)
{
    return push(m, &FALSE_NODE, err);
}

static tap_status op_int1(machine *m, tap_error *err)
{
    uint64_t value;
    TAP_TRY(take_number(m, 1, &value, err));
    return push_int(m, (int64_t)value, err);
}

static tap_status op_int2(machine *m, tap_error *err)
{
    uint64_t value;
    TAP_TRY(take_number(m, 2, &value, err));
    return push_int(m, (int64_t)value, err);
}

static tap_status op_int4(machine *m, tap_error *err)
{
    uint64_t value;
    TAP_TRY(take_number(m, 4, &value, err));
    return push_int(m, (int32_t)(uint32_t)value, err);
}

static tap_status op_long1(machine *m, tap_error *err)
{
    uint64_t len;
    TAP_TRY(take_number(m, 1, &len, err));
    return push_long(m, len, err);
}

static tap_status op_long4(machine *m, tap_error *err)
{
    uint64_t len;
    TAP_TRY(take_number(m, 4, &len, err));
    return push_long(m, len, err);
}

static tap_status op_float(machine *m, tap_error *err)
{
    const uint8_t *at;
    tap_pickle_node *node;
    TAP_TRY(take_bytes(m, 8, &at, err));
    TAP_TRY(push_new(m, TAP_PICKLE_FLOAT, &node, err));
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    memcpy(&node->number, &value, 8);
    return TAP_OK;
}

static tap_status op_text1(machine *m, tap_error *err)
{
    uint64_t len;
    TAP_TRY(take_number(m, 1, &len, err));
    return push_text(m, len, err);
}

static tap_status op_text4(machine *m, tap_error *err)
{
    uint64_t len;
    TAP_TRY(take_number(m, 4, &len, err));
    return push_text(m, len, err);
}

static tap_status op_text8(machine *m, tap_error *err)
{
    uint64_t len;
    TAP_TRY(take_number(m, 8, &len, err));
    return push_text(m, len, err);
}

static tap_status op_empty_list(machine *m, tap_error *err)
{
    tap_pickle_node *node;
    return push_new(m, TAP_PICKLE_LIST, &node, err);
}

static tap_status op_empty_dict(machine *m, tap_error *err)
{
    tap_pickle_node *node;
    return push_new(m, TAP_PICKLE_DICT, &node, err);
}

static tap_status op_empty_tuple(machine *m, tap_error *err)
{
    return push(m, &EMPTY_NODE, err);
}

/* The values above `first` become the items of the container below them; drop: what else to take off the stack. */
static tap_status append_to(machine *m, tap_pickle_kind kind, size_t first, size_t drop, tap_error *err)
{
    if (first < drop + 1 || m->stack[first - drop - 1]->kind != kind)
        return damaged(m, "it adds to something that is not a list or dict", err);
    tap_pickle_node *container = m->stack[first - drop - 1];
    if (kind == TAP_PICKLE_DICT && (m->depth - first) % 2)
        return damaged(m, "a dict has a key without a value", err);
    for (size_t i = first; i < m->depth; i++)
        TAP_TRY(tap__pickle_append(&m->context, container, m->stack[i], err));
    m->depth = first - drop;
    return TAP_OK;
}

static tap_status op_append(machine *m, tap_error *err)
{
    tap_pickle_node *ignored;
    TAP_TRY(pop(m, &ignored, err));
    return append_to(m, TAP_PICKLE_LIST, m->depth++, 0, err);
}

static tap_status op_appends(machine *m, tap_error *err)
{
    size_t first;
    TAP_TRY(find_mark(m, &first, err));
    return append_to(m, TAP_PICKLE_LIST, first, 1, err);
}

static tap_status op_setitem(machine *m, tap_error *err)
{
    tap_pickle_node *ignored;
    TAP_TRY(pop(m, &ignored, err));
    TAP_TRY(pop(m, &ignored, err));
    size_t first = m->depth;
    m->depth += 2;
    return append_to(m, TAP_PICKLE_DICT, first, 0, err);
}

static tap_status op_setitems(machine *m, tap_error *err)
{
    size_t first;
    TAP_TRY(find_mark(m, &first, err));
    return append_to(m, TAP_PICKLE_DICT, first, 1, err);
}

/* Replaces the values above `first` by a tuple; drop as above. */
static tap_status make_tuple(machine *m, size_t first, size_t drop, tap_error *err)
{
    tap_pickle_node *tuple;
    TAP_TRY(tap__pickle_node(&m->context, TAP_PICKLE_TUPLE, &tuple, err));
    for (size_t i = first; i < m->depth; i++)
        TAP_TRY(tap__pickle_append(&m->context, tuple, m->stack[i], err));
    m->depth = first - drop;
    return push(m, tuple, err);
}

static tap_status op_tuple(machine *m, tap_error *err)
{
    size_t first;
    TAP_TRY(find_mark(m, &first, err));
    return make_tuple(m, first, 1, err);
}

static tap_status make_short_tuple(machine *m, size_t count, tap_error *err)
{
    if (m->depth < count)
        return damaged(m, "it takes a value that is not there", err);
    for (size_t i = m->depth - count; i < m->depth; i++)
        if (m->stack[i] == &MARK_NODE)
            return damaged(m, "it takes a value that is not there", err);
    return make_tuple(m, m->depth - count, 0, err);
}

static tap_status op_tuple1(machine *m, tap_error *err)
{
    return make_short_tuple(m, 1, err);
}

static tap_status op_tuple2(machine *m, tap_error *err)
{
    return make_short_tuple(m, 2, err);
}

static tap_status op_tuple3(machine *m, tap_error *err)
{
    return make_short_tuple(m, 3, err);
}

static tap_status memo_put(machine *m, uint64_t index, tap_error *err)
{
    if (m->depth == 0 || m->stack[m->depth - 1] == &MARK_NODE)
        return damaged(m, "it keeps a value that is not there", err);
    /* a pickler counts up, with at least one byte for each: a larger number only wants memory */
    if (index > m->memo_max)
        return damaged(m, "a memo number is too large", err);
    size_t old = m->memo_room;
    TAP_TRY(grow(m, &m->memo, old, &m->memo_room, (size_t)index + 1, err));
    for (size_t i = old; i < m->memo_room; i++)
        m->memo[i] = NULL;
    m->memo_count += m->memo[index] == NULL;
    m->memo[index] = m->stack[m->depth - 1];
    return TAP_OK;
}

static tap_status memo_get(machine *m, uint64_t index, tap_error *err)
{
    if (index >= m->memo_room || !m->memo[index])
        return damaged(m, "it fetches a value that was never kept", err);
    return push(m, m->memo[index], err);
}

static tap_status op_put1(machine *m, tap_error *err)
{
    uint64_t index;
    TAP_TRY(take_number(m, 1, &index, err));
    return memo_put(m, index, err);
}

static tap_status op_put4(machine *m, tap_error *err)
{
    uint64_t index;
    TAP_TRY(take_number(m, 4, &index, err));
    return memo_put(m, index, err);
}

static tap_status op_memoize(machine *m, tap_error *err)
{
    return memo_put(m, m->memo_count, err);
}

static tap_status op_get1(machine *m, tap_error *err)
{
    uint64_t index;
    TAP_TRY(take_number(m, 1, &index, err));
    return memo_get(m, index, err);
}

static tap_status op_get4(machine *m, tap_error *err)
{
    uint64_t index;
    TAP_TRY(take_number(m, 4, &index, err));
    return memo_get(m, index, err);
}

static tap_status take_line(machine *m, const char **text, size_t *len, tap_error *err)
{
    const uint8_t *newline = memchr(m->at, '\n', (size_t)(m->end - m->at));
    *text = (const char *)m->at;
    *len = newline ? (size_t)(newline - m->at) : 0;
    if (!newline)
        return damaged(m, "a name does not end", err);
    m->at = newline + 1;
    return TAP_OK;
}

static tap_status op_global(machine *m, tap_error *err)
{
    const char *module, *name;
    size_t module_len, name_len;
    tap_pickle_node *node;
    TAP_TRY(take_line(m, &module, &module_len, err));
    TAP_TRY(take_line(m, &name, &name_len, err));
    TAP_TRY(tap__pickle_global(&m->context, module, module_len, name, name_len, &node, err));
    return push(m, node, err);
}

static tap_status op_stack_global(machine *m, tap_error *err)
{
    tap_pickle_node *module, *name, *node;
    TAP_TRY(pop(m, &name, err));
    TAP_TRY(pop(m, &module, err));
    if (module->kind != TAP_PICKLE_STR || name->kind != TAP_PICKLE_STR)
        return damaged(m, "a global's name is not a string", err);
    TAP_TRY(tap__pickle_global(&m->context, module->text, module->len, name->text, name->len, &node, err));
    return push(m, node, err);
}

static tap_status op_reduce(machine *m, tap_error *err)
{
    tap_pickle_node *function, *arguments, *result;
    TAP_TRY(pop(m, &arguments, err));
    TAP_TRY(pop(m, &function, err));
    TAP_TRY(tap__pickle_call(&m->context, function, arguments, &result, err));
    return push(m, result, err);
}

/* A dict's attributes (state_dict has _metadata) are not values: they are dropped. */
static tap_status op_build(machine *m, tap_error *err)
{
    tap_pickle_node *state;
    TAP_TRY(pop(m, &state, err));
    if (m->depth == 0 || m->stack[m->depth - 1]->kind != TAP_PICKLE_DICT)
        return damaged(m, "it sets attributes of something that is not a dict", err);
    return TAP_OK;
}

static tap_status op_persistent(machine *m, tap_error *err)
{
    tap_pickle_node *id, *result;
    TAP_TRY(pop(m, &id, err));
    TAP_TRY(tap__pickle_storage(&m->context, id, &result, err));
    return push(m, result, err);
}

static const op_fn OPS[256] = {
    [0x80] = op_proto, [0x95] = op_frame, ['.'] = op_stop, ['('] = op_mark, ['0'] = op_pop, ['1'] = op_pop_mark,
    ['N'] = op_none, [0x88] = op_true, [0x89] = op_false, ['K'] = op_int1, ['M'] = op_int2, ['J'] = op_int4,
    [0x8a] = op_long1, [0x8b] = op_long4, ['G'] = op_float, [0x8c] = op_text1, ['X'] = op_text4, [0x8d] = op_text8,
    ['U'] = op_text1, ['T'] = op_text4, /* strings of Python 2 */
    [']'] = op_empty_list, ['}'] = op_empty_dict, [')'] = op_empty_tuple, ['a'] = op_append, ['e'] = op_appends,
    ['s'] = op_setitem, ['u'] = op_setitems, ['t'] = op_tuple, [0x85] = op_tuple1, [0x86] = op_tuple2,
    [0x87] = op_tuple3, ['q'] = op_put1, ['r'] = op_put4, [0x94] = op_memoize, ['h'] = op_get1, ['j'] = op_get4,
    ['c'] = op_global, [0x93] = op_stack_global, ['R'] = op_reduce, ['b'] = op_build, ['Q'] = op_persistent,
};

tap_status tap__pickle_read(const uint8_t *bytes, size_t len, const char *path, tap_arena *arena,
                            tap_pickle_node **out, tap_error *err)
{
    machine m = {.context = {path, arena, &NONE_NODE}, .at = bytes, .end = bytes + len, .memo_max = len};
    while (!m.stopped) {
        const uint8_t *op;
        TAP_TRY(take_bytes(&m, 1, &op, err));
        if (!OPS[*op])
            return tap_fail(err, TAP_E_UNSUPPORTED, "%s: refuses pickle opcode 0x%02x: only tensors, lists, tuples, "
                            "dicts, numbers and strings are read; load it with torch and save the tensors alone", path,
                            *op);
        TAP_TRY(OPS[*op](&m, err));
    }
    TAP_TRY(pop(&m, out, err));
    return TAP_OK;
}
